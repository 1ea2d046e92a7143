#!/usr/bin/env bash
# Builds the test bed's cluster into out/bed/bin and out/bed/images: Kubernetes, containerd and CNI plugins from Go
# modules, and container images. Builds Helm into out/bin. Parts that exist in the same version are not built again.
set -euo pipefail
cd "$(dirname "$0")/../.."
kubernetes=v1.36.3 containerd=v2.4.2 cni=v1.9.1 runc=v1.3.3 coredns=v1.15.0
bin=$PWD/out/bed/bin images=$PWD/out/bed/images
mkdir -p "$bin" "$images"
exec 9>"$bin/.lock"
flock -n 9 || { # levels that run side by side need the bed at the same time
	echo "waiting for another build of the test bed"
	flock 9
}
export CGO_ENABLED=0
# Compilers whose heap grows up to a limit need a quarter less CPU time, and here CPU time decides how long it takes.
export GOGC=off GOMEMLIMIT=2GiB

# once runs a command that makes a file, unless it has made the file before and the stamp is the same.
once() { # STAMP FILE COMMAND...
	local stamp=$bin/.$1 file=$2
	shift 2
	[ -e "$stamp" ] && [ -e "$file" ] && return
	"$@"
	touch "$stamp"
}

# Helm is in the same module and shares most packages with kubectl.
build_kubernetes() {
	echo "building Kubernetes $kubernetes and Helm: six minutes on a new machine"
	local made=$bin/.made
	go -C k8s build -o "$made/" -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes \
		-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" \
		./cmd/bed helm.sh/helm/v4/cmd/helm
	mkdir -p out/bin
	mv "$made/bed" "$bin/k8s"
	mv "$made/helm" out/bin/helm
	for name in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
		ln -sf k8s "$bin/$name"
	done
}
build_containerd() {
	echo "building containerd $containerd: two minutes on a new machine"
	GOBIN=$bin go install -ldflags '-s -w' \
		github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}@$containerd
}
# This runc has the newer formula for containers' weights. go install refuses its module because of replace lines. It needs
# seccomp, and a C compiler for that: without seccomp, containers with a profile do not start.
build_runc() (
	module=$(mktemp -d)
	trap 'rm -rf "$module"' EXIT
	cd "$module"
	go mod init bed
	go get github.com/opencontainers/runc@$runc
	CGO_ENABLED=1 go build -tags seccomp,netgo,osusergo -ldflags '-s -w -extldflags -static' \
		-o "$bin/runc-quadratic" github.com/opencontainers/runc
)
# CoreDNS with the plugins that the bed uses: 55 MB, a minute and a half of CPU time on a new machine. All plugins together
# need the libraries of three clouds.
build_coredns() (
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
	go build -ldflags '-s -w' -o "$bin/coredns" .
)
build_cni() {
	GOBIN=$bin go install -ldflags '-s -w' \
		github.com/containernetworking/plugins/plugins/{main/bridge,main/loopback,ipam/host-local}@$cni
}

version() { sha256sum | cut -c1-12; } # of standard input

# Kubernetes is last: on a new machine, level 1 then has compiled client-go, which both need.
kubernetes_stamp=$kubernetes-$(cat k8s/go.sum k8s/cmd/bed/*.go | version)
once "containerd-$containerd" "$bin/containerd" build_containerd
once "cni-$cni" "$bin/bridge" build_cni
once "runc-$runc" "$bin/runc-quadratic" build_runc
once "coredns-$coredns" "$bin/coredns" build_coredns
once "kubernetes-$kubernetes_stamp" out/bin/helm build_kubernetes
# The scheduler with the plugins is linked in seconds once Kubernetes is compiled.
go -C k8s build -o "$bin/" -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" ./cmd/waterline-scheduler
go build -o "$bin/" ./test/bed/cmd/bed ./test/bed/vmnode/cmd/vmnode
cp deploy/apiserver/* "$bin/"

go build -o out/bin/image ./deploy/cmd/image
image() { out/bin/image "$@"; }
busybox=$(command -v busybox)
applets=$("$busybox" --list | grep -v '^busybox$' | sed 's|.*|/bin/&=busybox|' | paste -sd, -)
image -name wl.test/busybox:1 -o "$images/busybox.tar" -links "$applets" "$busybox=/bin/busybox"
image -name wl.test/pause:1 -o "$images/pause.tar" -entrypoint /pause -links /bin/sh=busybox,/bin/sleep=busybox \
	"$busybox=/bin/busybox" test/bed/pause.sh=/pause
image -name waterline/agent:dev -o "$images/agent.tar" -entrypoint /waterline-agent \
	out/bin/waterline-agent=/waterline-agent
next=$PWD/out/bed/next # a newer version of the agent
mkdir -p "$next"
go run ./test/bed/cmd/next "$next" >"$next/overlay.json"
go build -overlay "$next/overlay.json" -ldflags '-s -w -X main.version=next' -o "$next/" ./cmd/waterline-agent
image -name waterline/agent:next -o "$images/agent-next.tar" -entrypoint /waterline-agent \
	"$next/waterline-agent=/waterline-agent"
image -name waterline/manager:dev -o "$images/manager.tar" -user 65532 -entrypoint /waterline-manager \
	out/bin/waterline-manager=/waterline-manager
image -name waterline/guard:dev -o "$images/guard.tar" -user 65532 -entrypoint /waterline-guard \
	out/bin/waterline-guard=/waterline-guard
image -name waterline/scheduler:dev -o "$images/scheduler.tar" -user 65532 -entrypoint /waterline-scheduler \
	"$bin/waterline-scheduler=/waterline-scheduler"

# lab transcode needs ffmpeg in a pod. Debian's ffmpeg is linked against some two hundred libraries and needs all of them:
# 250 MB.
if ffmpeg=$(command -v ffmpeg); then
	mapfile -t libraries < <(ldd "$ffmpeg" | awk '{for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i "=" $i}')
	ffmpeg_stamp=$(stat -Lc '%n %s %Y' "$busybox" "$ffmpeg" out/bin/image "${libraries[@]%%=*}" | version)
	once "ffmpeg-$ffmpeg_stamp" "$images/ffmpeg.tar" \
		image -name wl.test/ffmpeg:1 -o "$images/ffmpeg.tar" -links "$applets" \
		"$busybox=/bin/busybox" "$ffmpeg=/usr/bin/ffmpeg" "${libraries[@]}"
else
	echo "ffmpeg is not installed: the image wl.test/ffmpeg:1 is not built, and TestNodeTranscode is skipped" >&2
fi
