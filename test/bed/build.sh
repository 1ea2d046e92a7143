#!/usr/bin/env bash
# Builds what the test bed's cluster needs into out/bed/bin and out/bed/images: Kubernetes, containerd and CNI plugins from
# Go modules, and its images. What is there already, in the same version, is left alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
kubernetes=v1.36.3 containerd=v2.4.2 cni=v1.9.1 runc=v1.3.3
bin=$PWD/out/bed/bin images=$PWD/out/bed/images
mkdir -p "$bin" "$images"
exec 9>"$bin/.lock"
flock 9 # rungs that run side by side come here at the same time
export CGO_ENABLED=0
# A compiler that collects its garbage less often needs a quarter less CPU time, and here that is what takes time.
export GOGC=400 GOMEMLIMIT=3GiB

once() { # STAMP COMMAND...: runs the command unless it has succeeded before
	local stamp=$bin/.$1
	shift
	[ -e "$stamp" ] && return
	"$@"
	touch "$stamp"
}

build_kubernetes() {
	echo "building Kubernetes $kubernetes: six minutes on a new machine"
	go -C k8s build -o "$bin/k8s" -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes \
		-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" ./cmd/bed
	for name in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do ln -sf k8s "$bin/$name"; done
}
build_containerd() {
	echo "building containerd $containerd: two minutes on a new machine"
	GOBIN=$bin go install -ldflags '-s -w' github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}@$containerd
}
# A runc that has the newer formula for containers' weights. go install refuses its module, which has replace lines; and it
# must be built with seccomp, which takes a C compiler, or containers with a profile do not start.
build_runc() (
	module=$(mktemp -d)
	trap 'rm -rf "$module"' EXIT
	cd "$module"
	go mod init bed
	go get github.com/opencontainers/runc@$runc
	CGO_ENABLED=1 go build -tags seccomp,netgo,osusergo -ldflags '-s -w -extldflags -static' -o "$bin/runc-quadratic" github.com/opencontainers/runc
)
build_vmnode() {
	echo "building the root file system of the node in a virtual machine: half a minute"
	test/bed/vmnode/image.sh "$bin" "$bin/vmnode.img"
}
build_cni() {
	GOBIN=$bin go install -ldflags '-s -w' github.com/containernetworking/plugins/plugins/{main/bridge,main/loopback,ipam/host-local}@$cni
}

stamp=$kubernetes-$(cat k8s/go.sum k8s/cmd/bed/*.go | sha256sum | cut -c1-12)
once "kubernetes-$stamp" build_kubernetes
once "containerd-$containerd" build_containerd
once "cni-$cni" build_cni
once "runc-$runc" build_runc
once "vmnode-$(echo "$stamp $containerd $cni $runc" | cat - test/bed/vmnode/image.sh $(find test/bed/vmnode/rootfs -type f | sort) | sha256sum | cut -c1-12)" build_vmnode
go build -o "$bin/" ./test/bed/cmd/bed ./test/bed/vmnode/cmd/vmnode

go build -o out/bin/image ./deploy/image
busybox=$(command -v busybox)
applets=$("$busybox" --list | grep -v '^busybox$' | sed 's|.*|/bin/&=busybox|' | paste -sd, -)
out/bin/image -name wl.test/busybox:1 -o "$images/busybox.tar" -links "$applets" "$busybox=/bin/busybox"
out/bin/image -name wl.test/pause:1 -o "$images/pause.tar" -entrypoint "/bin/busybox sleep 2147483647" "$busybox=/bin/busybox"
out/bin/image -name waterline/agent:dev -o "$images/agent.tar" -entrypoint /waterline-agent out/bin/waterline-agent=/waterline-agent
out/bin/image -name waterline/manager:dev -o "$images/manager.tar" -user 65532 -entrypoint /waterline-manager out/bin/waterline-manager=/waterline-manager

# For lab transcode. Debian's ffmpeg is linked against some two hundred libraries, and runs with all of them
# or not at all.
if ffmpeg=$(command -v ffmpeg); then
	libraries=$(ldd "$ffmpeg" | awk '{for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i "=" $i}')
	out/bin/image -name wl.test/ffmpeg:1 -o "$images/ffmpeg.tar" -links "$applets" "$busybox=/bin/busybox" "$ffmpeg=/usr/bin/ffmpeg" $libraries
else
	echo "no ffmpeg here: the image wl.test/ffmpeg:1 is not built, and TestNodeTranscode is skipped" >&2
fi
