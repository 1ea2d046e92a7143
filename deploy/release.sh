#!/usr/bin/env bash
# Builds a release into out/release.
#
#   VERSION=0.2.0 deploy/release.sh images    programs for Linux, their images and bills of materials
#   VERSION=0.2.0 deploy/release.sh all       also what is published beside the images, into out/release/dist
#
# With REGISTRY=host/path, images and chart are pushed. With KEY=file, which cosign made, what was pushed is signed; the
# key's password is in COSIGN_PASSWORD. PLAIN_HTTP=1 is for a registry without TLS.
#
# The same commit and the same Go make the same programs, images, chart and archives.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?images or all} version=${VERSION:?} registry=${REGISTRY:-} key=${KEY:-}
bin=$PWD/out/bin out=$PWD/out/release dist=$PWD/out/release/dist
commit=${COMMIT:-$(git rev-parse HEAD)}
number='(0|[1-9][0-9]*)'
if [ "$what" = all ] && ! [[ $version =~ ^$number\.$number\.$number(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "VERSION=$version: write a semantic version without v, such as 0.2.0" >&2
	exit 2
fi
if [ -n "$key" ] && [ -z "$registry" ]; then
	echo "KEY signs what is in a registry: set REGISTRY too" >&2
	exit 2
fi
plain=()
[ -z "${PLAIN_HTTP:-}" ] || plain=(--plain-http)

# What depends on the builder's machine is out of the programs: paths, and the state of the work tree. So is debug
# information, as in the Makefile.
export CGO_ENABLED=0 GOFLAGS="-trimpath -gcflags=all=-dwarf=false -buildvcs=false" GOAMD64=v1 GOARM64=v8.0
ldflags="-s -w -X main.version=$version -X main.commit=${commit:0:12}"

# The scheduler tells clients which Kubernetes it is made from. They accept what follows the plus sign.
scheduler() { # OS-ARCH
	local kubernetes
	kubernetes=$(go -C k8s list -m -f '{{.Version}}' k8s.io/kubernetes)
	IFS=. read -r major minor _ <<<"${kubernetes#v}"
	local of=k8s.io/component-base/version
	go -C k8s build -o "$out/bin/$1/" -ldflags "$ldflags -X $of.gitVersion=$kubernetes+waterline-$version \
		-X $of.gitMajor=$major -X $of.gitMinor=$minor -X $of.gitCommit=$commit" ./cmd/waterline-scheduler
}

programs() {
	local arch
	for arch in amd64 arm64; do
		echo "building for Linux on $arch"
		GOOS=linux GOARCH=$arch go build -o "$out/bin/linux-$arch/" -ldflags "$ldflags" ./cmd/...
		GOOS=linux GOARCH=$arch scheduler "linux-$arch"
		[ "$what" = all ] || continue
		echo "building the command line for macOS on $arch"
		GOOS=darwin GOARCH=$arch go build -o "$out/bin/darwin-$arch/" -ldflags "$ldflags" ./cmd/waterline
	done
}

images() {
	local push=()
	[ -z "$registry" ] || push=(-registry "$registry" "${plain[@]}")
	go run ./deploy/cmd/release -version "$version" -commit "$commit" -bin "$out/bin" -o "$out" "${push[@]}"
}

# The chart of a release has the release's version, and takes its images from where they were pushed.
chart() {
	local source=$out/chart/waterline
	mkdir -p "$out/chart"
	cp -r deploy/chart "$source"
	sed -i "s|^  registry: \"\"$|  registry: \"${registry%/}\"|" "$source/values.yaml"
	grep -q "^  registry: \"${registry%/}\"$" "$source/values.yaml"
	find "$source" -exec touch -d @0 {} + # their times are in the archive
	"$bin/helm" package "$source" --version "$version" --app-version "$version" --destination "$dist"
	[ -n "$registry" ] || return 0
	"$bin/helm" push "$dist/waterline-$version.tgz" "oci://${registry%/}/charts" "${plain[@]}" 2>&1 | tee "$out/chart/push.log"
	echo "${registry%/}/charts/waterline@$(sed -n 's/^Digest: //p' "$out/chart/push.log")" >>"$out/pushed.txt"
}

# The archives for Linux have the agent, for "waterline demo".
archives() {
	local platform program programs
	for platform in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do
		programs=(waterline)
		[[ $platform != linux-* ]] || programs+=(waterline-agent)
		cp LICENSE "$out/bin/$platform/"
		tar --create --directory "$out/bin/$platform" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 \
			--mode=u=rwX,go=rX "${programs[@]}" LICENSE | gzip -9n >"$dist/waterline-$version-$platform.tar.gz"
	done
}

# Krew is the package manager for plugins of kubectl.
krew() {
	local base=${DOWNLOADS:-https://github.com/waterline-io/waterline/releases/download/v$version} platform file
	cat <<-EOF
		apiVersion: krew.googlecontainertools.github.com/v1alpha2
		kind: Plugin
		metadata:
		  name: waterline
		spec:
		  version: v$version
		  homepage: https://github.com/waterline-io/waterline
		  shortDescription: Show and explain batch work on the slack of nodes
		  description: |
		    Shows what Waterline does in a cluster: how full nodes are with online and batch pods,
		    which decision set which CPU and memory, and why. Simulates policies on recorded usage.
		  platforms:
	EOF
	for platform in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do
		file=waterline-$version-$platform.tar.gz
		cat <<-EOF
			  - selector: {matchLabels: {os: ${platform%-*}, arch: ${platform#*-}}}
			    uri: $base/$file
			    sha256: $(sha256sum "$dist/$file" | cut -d' ' -f1)
			    files: [{from: waterline, to: .}, {from: LICENSE, to: .}]
			    bin: waterline
		EOF
	done
}

# Signatures need no service on the network, neither to be made nor to be verified: the lists of services and of trusted
# authorities are empty.
sign() {
	local ref alone=(--signing-config "$out/signing.json" --trusted-root "$out/trusted.json") insecure=()
	[ -z "${PLAIN_HTTP:-}" ] || insecure=(--allow-http-registry)
	"$bin/cosign" signing-config create --out "$out/signing.json"
	"$bin/cosign" trusted-root create --out "$out/trusted.json"
	while read -r ref; do
		"$bin/cosign" sign --yes --key "$key" "${alone[@]}" "${insecure[@]}" "$ref"
	done <"$out/pushed.txt"
	[ "$what" = all ] || return 0
	"$bin/cosign" sign-blob --yes --key "$key" "${alone[@]}" \
		--bundle "$dist/checksums.txt.sigstore.json" "$dist/checksums.txt"
}

rm -rf "$out"
mkdir -p "$dist"
programs
images
if [ "$what" = all ]; then
	chart
	archives
	krew >"$dist/waterline-krew.yaml"
	cp "$out"/sbom/*.cdx.json "$dist/"
	[ -z "$key" ] || "$bin/cosign" public-key --key "$key" --outfile "$dist/cosign.pub"
	(cd "$dist" && sha256sum -- * >checksums.txt)
fi
[ -z "$key" ] || sign
if [ -n "$registry" ]; then
	echo "pushed:"
	cat "$out/pushed.txt"
fi
