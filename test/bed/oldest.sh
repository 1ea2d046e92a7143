#!/usr/bin/env bash
# Builds the oldest supported Kubernetes from its Go modules into out/bed/oldest/bin, beside the rest of the test bed,
# which make bed builds: for make test-oldest. The newest is what make bed builds.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=v1.32.13
bin=$PWD/out/bed/oldest/bin
mkdir -p "$bin"
for file in out/bed/bin/*; do
	[ "${file##*/}" = k8s ] || ln -sf "$PWD/$file" "$bin/"
done
cp --remove-destination out/bed/bin/bed "$bin/" # it starts the programs beside itself
if [ ! -e "$bin/.kubernetes-$release" ]; then
	echo "building Kubernetes $release: six minutes on a new machine"
	module=$(mktemp -d)
	trap 'rm -rf "$module"' EXIT
	# This version's kubelet makes a context of its own.
	sed '/^\t"context"$/d; s/NewKubeletCommand(context.Background())/NewKubeletCommand()/' k8s/cmd/bed/main.go >"$module/main.go"
	(
		cd "$module"
		go mod init bed
		go mod edit -require "k8s.io/kubernetes@$release"
		gomod=$(go mod download -json "k8s.io/kubernetes@$release" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
		# As k8s/update-modules.sh does; the newest patch release that a proxy has of each module.
		for name in $(sed -n 's|^\t\(k8s\.io/[a-z-]*\) => ./staging/.*|\1|p' "$gomod"); do
			version=$(cd / && go list -m -versions "$name" | tr ' ' '\n' | grep '^v0\.32\.[0-9]*$' | sort -V | tail -1) || true
			go mod edit -replace "$name=$name@${version:-v0.${release#v1.}}"
		done
		go mod tidy
		CGO_ENABLED=0 GOGC=off GOMEMLIMIT=2GiB go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$release \
			-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=32" -o "$bin/k8s.made" .
	)
	rm -f "$bin/k8s"
	mv "$bin/k8s.made" "$bin/k8s"
	touch "$bin/.kubernetes-$release"
fi
# kubectl stays the newer one: the older one takes manifests that begin with a brace for JSON.
for name in kube-apiserver kube-controller-manager kube-scheduler kubelet; do
	ln -sf k8s "$bin/$name"
done
