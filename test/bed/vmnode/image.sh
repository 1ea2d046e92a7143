#!/usr/bin/env bash
# Builds the root file system of the node in a virtual machine, an ext4 image:
#
#   test/bed/vmnode/image.sh BIN IMAGE
#
# BIN has Kubernetes, containerd and the CNI plugins. The image has neither kernel nor udev: the initramfs has the few
# modules, and devtmpfs makes the devices.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$1 image=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
root=$work/root

# The guest has this machine's distribution, because it boots that distribution's kernel.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mmdebstrap --quiet --mode=root --variant=minbase --include=systemd,systemd-sysv,dbus,iproute2,runc,mount,procps \
	--aptopt='Apt::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$root"

install -m755 -t "$root/usr/local/bin" "$bin"/{kubelet,containerd,containerd-shim-runc-v2,ctr,runc-quadratic}
install -D -m755 -t "$root/opt/cni/bin" "$bin"/{bridge,host-local,loopback}
cp -r "$here/rootfs/." "$root/"
mkdir -p "$root/etc/kubernetes/manifests" "$root/etc/systemd/journald.conf.d"
echo bed-v2 >"$root/etc/hostname"
printf '127.0.0.1 localhost\n10.0.2.15 bed-v2\n' >"$root/etc/hosts"
: >"$root/etc/fstab"
echo 77617465726c696e652062656420763a >"$root/etc/machine-id"
printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=64M\nRateLimitBurst=0\n' \
	>"$root/etc/systemd/journald.conf.d/bed.conf"

chroot "$root" systemctl --quiet enable \
	network.service apiserver.socket containerd.service kubelet.service vmnode.service
chroot "$root" systemctl --quiet set-default multi-user.target
# Units of no use to a node that lives for minutes, and units that would wait for udev.
chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
	e2scrub_all.timer fstrim.timer e2scrub_reap.service getty.target kmod-static-nodes.service modprobe@.service proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount \
	sys-kernel-tracing.mount systemd-binfmt.service systemd-firstboot.service systemd-hwdb-update.service \
	systemd-journal-flush.service systemd-logind.service systemd-machine-id-commit.service systemd-pcrphase.service \
	systemd-pcrphase-sysinit.service systemd-random-seed.service systemd-remount-fs.service systemd-repart.service \
	systemd-sysusers.service systemd-update-utmp.service systemd-update-utmp-runlevel.service

mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=1,root_owner=0:0 -d "$root" "$image.new" 3G
mv "$image.new" "$image"
