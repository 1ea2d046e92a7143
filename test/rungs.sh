#!/usr/bin/env bash
# Runs the rungs of the test bed and says at the end what became of each. What measures runs alone, and so does rung 5b, for whose
# emulated machine this one is just fast enough. Rung 3, and of rungs 4 and 5a what measures nothing, mostly wait. They run two at a
# time; the summary has them in the order in which they end.
#
#   test/rungs.sh short|full
#
# A rung whose need is missing on this machine is skipped by name. Under CI nothing may be skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
form=${1:-short}
[ "$form" = full ] && export WATERLINE_SOAK=1
logs=out/test/log summary=out/test/log/summary
mkdir -p "$logs"
: >"$summary"

needs() { # RUNG NEED...: prints why the rung cannot run here, nothing if it can
	shift
	for need in "$@"; do
		case $need in
		root) [ "$(id -u)" = 0 ] || echo "not root" ;;
		cgroup) [ -e /sys/fs/cgroup/cpu/cgroup.procs ] || [ -e /sys/fs/cgroup/cgroup.controllers ] || echo "no cgroup file system" ;;
		*) command -v "$need" >/dev/null || echo "no $need" ;;
		esac
	done
}

rung() { # NAME TARGET NEED...
	local name=$1 target=$2 missing start=$SECONDS
	shift 2
	missing=$(needs "$name" "$@" | paste -sd, -)
	if [ -n "$missing" ]; then
		if [ -n "${CI:-}" ]; then
			echo "FAILED   $name: $missing, and CI skips nothing"
		else
			echo "skipped  $name: $missing"
		fi >>"$summary"
		return
	fi
	echo "=== $name (make $target)"
	if make --no-print-directory "$target" 2>&1 | tee "$logs/$target.log"; then
		echo "passed   $name in $((SECONDS - start)) s" >>"$summary"
		return
	fi
	echo "FAILED   $name after $((SECONDS - start)) s: make $target; all of it is in $logs/$target.log" >>"$summary"
	why "$logs/$target.log" >>"$summary"
}

# why prints what the failed tests of a rung said themselves.
why() { # LOG
	awk '
		/^ *--- FAIL: / { show = 1; print "    " $0; next }
		/^ *(---|===) / || /^[^ ]/ { show = 0 }
		/^panic: |^make.*Error|: error: / { print "    " $0 }
		show && lines++ < 200 { print "    " $0 }
	' "$1" | cut -c1-400
}

trap 'trap - INT TERM; kill 0' INT TERM # what runs beside ends too
test/bed/packages.sh >"$logs/packages.log" & # which rung 1 does without
packages=$!
rung "rung 1: pure" check go
wait $packages || echo "FAILED   installing packages" >>"$summary"
rung "rung 2: live kernel" test-kernel go root cgroup
{
	rung "rung 3: v2 kernel" test-vm go qemu-system-x86_64
	rung "rung 5a: node, v1 + cgroupfs driver" test-node go root etcd runc ip
	rung "rung 5a, CPU manager policy static" test-node-static go root etcd runc ip
} >/dev/null &
rung "rung 4: API server" test-api go root etcd
rung "rung 3: CPU sets" test-vm-cpus go qemu-system-x86_64
wait
rung "rung 4: its figures" test-api-figures go root etcd
rung "rung 5a: its figures" test-node-figures go root etcd runc ip
rung "rung 5b: node, v2 + systemd driver, in a virtual machine" test-node-v2 go root etcd runc ip qemu-system-x86_64 mmdebstrap

echo
cat "$summary"
! grep -q ^FAILED "$summary"
