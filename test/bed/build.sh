#!/usr/bin/env bash
# Builds parts of the test bed's cluster into out/bed/bin and out/bed/images, and Helm into out/bin.
#
#   test/bed/build.sh [PART...]
#
#   core    Kubernetes, Helm, containerd and CNI plugins from Go modules, our programs, and their images
#   dns     CoreDNS, for pods of YARN
#   runc    a second runc, for the node in a virtual machine
#   ffmpeg  an image of ffmpeg, for the bench
#
# Without a PART, all of them. Programs of other projects are kept in a cache by version, so that another clone on this
# machine builds none of them again: $WATERLINE_BED_CACHE, or ~/.cache/waterline-bed.
set -euo pipefail
cd "$(dirname "$0")/../.."
kubernetes=v1.36.3 containerd=v2.4.2 cni=v1.9.1 runc=v1.3.3 coredns=v1.15.0
bin=$PWD/out/bed/bin images=$PWD/out/bed/images
cache=${WATERLINE_BED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/waterline-bed}
mkdir -p "$bin" "$images" "$cache" out/bin
exec 9>"$cache/.lock"
flock -n 9 || { # levels that run side by side need the bed at the same time
	echo "waiting for another build of the test bed"
	flock 9
}
export CGO_ENABLED=0
# Compilers whose heap grows up to a limit need a quarter less CPU time, and here CPU time decides how long it takes.
export GOGC=off GOMEMLIMIT=2GiB

# kept makes the programs of a version in the cache, unless they are there, and links them into out/bed/bin. The compiler and
# the commands that make them decide too what they are.
kept() { # NAME VERSION FUNCTION
	local is at
	is=$1-$2-$({ go version && go env GOFLAGS && declare -f "$3"; } | version)
	at=$cache/$is
	if [ ! -d "$at" ]; then
		rm -rf "$at.new"
		mkdir "$at.new"
		"$3" "$at.new"
		mv "$at.new" "$at"
	fi
	for file in "$at"/*; do
		ln -sfn "$file" "$bin/${file##*/}"
	done
	touch "$bin/.$is" # the root file system of the virtual machine is built again when this changes
	find "$bin" -maxdepth 1 -name ".$1-*" ! -name ".$is" -delete
}

# Helm is in the same module and shares most packages with kubectl.
build_kubernetes() { # DIRECTORY
	echo "building Kubernetes $kubernetes and Helm: four minutes on a new machine"
	go -C k8s build -o "$1/" -ldflags "$kubernetes_flags" ./cmd/bed helm.sh/helm/v4/cmd/helm
	mv "$1/bed" "$1/k8s"
}
build_containerd() { # DIRECTORY
	echo "building containerd $containerd: a minute on a new machine"
	GOBIN=$1 go install -ldflags '-s -w' \
		github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}@$containerd
}
# This runc has the newer formula for containers' weights. go install refuses its module because of replace lines. It needs
# seccomp, and a C compiler for that: without seccomp, containers with a profile do not start.
build_runc() ( # DIRECTORY
	module=$(mktemp -d)
	trap 'rm -rf "$module"' EXIT
	cd "$module"
	go mod init bed
	go get github.com/opencontainers/runc@$runc
	CGO_ENABLED=1 go build -tags seccomp,netgo,osusergo -ldflags '-s -w -extldflags -static' \
		-o "$1/runc-quadratic" github.com/opencontainers/runc
)
# CoreDNS with the plugins that the bed uses: 55 MB, a minute and a half of CPU time on a new machine. All plugins together
# need the libraries of three clouds.
build_coredns() ( # DIRECTORY
	echo "building CoreDNS $coredns: a minute on a new machine"
	module=$(mktemp -d)
	trap 'rm -rf "$module"' EXIT
	cd "$module"
	cat >main.go <<-EOF
		package main

		import (
			"github.com/coredns/coredns/coremain"
			_ "github.com/coredns/coredns/plugin/bind"
			_ "github.com/coredns/coredns/plugin/errors"
			_ "github.com/coredns/coredns/plugin/kubernetes"
		)

		func main() { coremain.Run() }
	EOF
	go mod init bed
	go get github.com/coredns/coredns@$coredns
	go mod tidy # drops what the other plugins need
	go build -ldflags '-s -w' -o "$1/coredns" .
)
build_cni() { # DIRECTORY
	GOBIN=$1 go install -ldflags '-s -w' \
		github.com/containernetworking/plugins/plugins/{main/bridge,main/loopback,ipam/host-local}@$cni
}

version() { sha256sum | cut -c1-12; } # of standard input

image() { out/bin/image "$@"; }

core() {
	local version_of=k8s.io/component-base/version next=$PWD/out/bed/next
	kubernetes_flags="-s -w -X $version_of.gitVersion=$kubernetes -X $version_of.gitMajor=1 -X $version_of.gitMinor=36"
	kept containerd "$containerd" build_containerd
	kept cni "$cni" build_cni
	# Kubernetes is last: on a new machine, level 1 then has compiled client-go, which both need.
	kept kubernetes "$kubernetes-$(cat k8s/go.sum k8s/cmd/bed/*.go | version)" build_kubernetes
	for name in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
		ln -sfn k8s "$bin/$name"
	done
	ln -sfn "$bin/helm" out/bin/helm
	# The scheduler with the plugins is linked in seconds once Kubernetes is compiled.
	go -C k8s build -o "$bin/" -ldflags "$kubernetes_flags" ./cmd/waterline-scheduler
	go build -o "$bin/" ./test/bed/cmd/bed ./test/bed/vmnode/cmd/vmnode
	cp deploy/apiserver/* "$bin/"

	image -name wl.test/busybox:1 -o "$images/busybox.tar" -links "$applets" "$busybox=/bin/busybox"
	image -name wl.test/pause:1 -o "$images/pause.tar" -entrypoint /pause -links /bin/sh=busybox,/bin/sleep=busybox \
		"$busybox=/bin/busybox" test/bed/pause.sh=/pause
	image -name waterline/agent:dev -o "$images/agent.tar" -entrypoint /bin/waterline-agent \
		out/bin/waterline-agent=/bin/waterline-agent out/bin/waterline=/bin/waterline
	mkdir -p "$next" # a newer version of the agent
	go run ./test/bed/cmd/next "$next" >"$next/overlay.json"
	go build -overlay "$next/overlay.json" -ldflags '-s -w -X main.version=next' -o "$next/" ./cmd/waterline-agent
	image -name waterline/agent:next -o "$images/agent-next.tar" -entrypoint /bin/waterline-agent \
		"$next/waterline-agent=/bin/waterline-agent"
	for name in manager guard; do
		image -name "waterline/$name:dev" -o "$images/$name.tar" -user 65532 -entrypoint "/bin/waterline-$name" \
			"out/bin/waterline-$name=/bin/waterline-$name"
	done
	image -name waterline/scheduler:dev -o "$images/scheduler.tar" -user 65532 -entrypoint /bin/waterline-scheduler \
		"$bin/waterline-scheduler=/bin/waterline-scheduler"
}

dns() { kept coredns "$coredns" build_coredns; }

runc() { kept runc "$runc" build_runc; }

# lab transcode needs ffmpeg in a pod. Debian's ffmpeg is linked against some two hundred libraries and needs all of them:
# 250 MB.
ffmpeg() {
	local ffmpeg libraries stamp
	if ! ffmpeg=$(type -P ffmpeg); then
		echo "ffmpeg is not installed: the image wl.test/ffmpeg:1 is not built, and TestNodeTranscode is skipped" >&2
		return
	fi
	mapfile -t libraries < <(ldd "$ffmpeg" | awk '{for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i "=" $i}')
	stamp=$bin/.ffmpeg-$(stat -Lc '%n %s %Y' "$busybox" "$ffmpeg" out/bin/image "${libraries[@]%%=*}" | version)
	[ -e "$stamp" ] && [ -e "$images/ffmpeg.tar" ] && return
	image -name wl.test/ffmpeg:1 -o "$images/ffmpeg.tar" -links "$applets" \
		"$busybox=/bin/busybox" "$ffmpeg=/usr/bin/ffmpeg" "${libraries[@]}"
	touch "$stamp"
}

go build -o out/bin/image ./deploy/cmd/image
busybox=$(command -v busybox)
applets=$("$busybox" --list | grep -v '^busybox$' | sed 's|.*|/bin/&=busybox|' | paste -sd, -)
[ $# -gt 0 ] || set -- core dns runc ffmpeg
for part in "$@"; do
	case $part in
	core | dns | runc | ffmpeg) "$part" ;;
	*)
		echo "$0: there is no part $part: core, dns, runc or ffmpeg" >&2
		exit 2
		;;
	esac
done
