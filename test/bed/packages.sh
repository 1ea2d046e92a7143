#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that the test bed needs and this machine lacks. Without root it prints their names.
#
#   test/bed/packages.sh [test|release]
#
# With "test", only those that make test needs; with "release", those of make test-release; else those of make test-all and
# make bench.
set -euo pipefail
packages=(busybox-static etcd-server iproute2 maven openjdk-17-jre-headless qemu-system-x86 runc)
release=(docker-registry qemu-user-static skopeo)
case ${1:-} in
test) ;;
release) packages=("${release[@]}") ;;
*)
	packages+=(
		"${release[@]}"
		chromium cpio e2fsprogs ffmpeg fonts-dejavu-core gcc krb5-admin-server krb5-kdc libc6-dev libseccomp-dev memcached
		mmdebstrap pkg-config prometheus python3-pip redis-server stress-ng
	)
	command -v npm >/dev/null || packages+=(npm) # packages of Node.js from elsewhere contain it
	;;
esac
missing=()
for p in "${packages[@]}"; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} = 0 ] && exit 0
if [ "$(id -u)" != 0 ]; then
	echo "packages missing: ${missing[*]}; without them some levels are skipped. As root: apt-get install ${missing[*]}" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# The services of docker-registry, etcd, Kerberos, memcached, Prometheus and Redis must not start here: the bed runs its own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
	trap 'rm -f $policy' EXIT
fi
apt-get install -y -qq --no-install-recommends "${missing[@]}"
