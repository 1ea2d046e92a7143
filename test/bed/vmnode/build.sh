#!/usr/bin/env bash
# Builds the root file system of the node in a virtual machine from the test bed's programs, unless it was built from the
# same ones before.
set -euo pipefail
cd "$(dirname "$0")/../../.."
bin=$PWD/out/bed/bin
exec 9>"$bin/.vmnode.lock"
flock 9
mapfile -t rootfs < <(find test/bed/vmnode/rootfs -type f | sort)
stamp=$bin/.vmnode-$( (cd "$bin" && ls -d .kubernetes-* .containerd-* .cni-* .runc-*) |
	cat - test/bed/vmnode/image.sh "${rootfs[@]}" | sha256sum | cut -c1-12)
[ -e "$stamp" ] && [ -e "$bin/vmnode.img" ] && exit
echo "building the root file system of the node in a virtual machine: half a minute"
test/bed/vmnode/image.sh "$bin" "$bin/vmnode.img"
touch "$stamp"
