#!/usr/bin/env bash
# Runs the levels of the test bed and prints at the end how each ended.
#
#   test/levels.sh short|full
#
# A level whose need is missing on this machine is skipped by name. Under CI a missing need is a failure.
#
# The order saves time on a new machine, where compiling takes most of it:
#  - The test bed is built from the first second on, at nice 19, beside level 1 and then beside level 3, whose tests
#    allow for a slow machine. Lint runs at nice 19 after it.
#  - Levels 3, 4, 5a, 6, 6b and 6c, without the figures that they measure, mostly wait. They run two at a time.
#  - Levels that measure run alone: level 2 and the figures of levels 4 and 5a. So does level 5b, whose emulated machine
#    needs all of this one to be fast enough.
set -uo pipefail
cd "$(dirname "$0")/.."
form=${1:-short}
[ "$form" = full ] && export WATERLINE_SOAK=1
logs=out/test/log summary=out/test/log/summary failed=out/test/log/failed
mkdir -p "$logs"
: >"$summary"
: >"$failed"

# missing prints the needs of a level that this machine does not have.
missing() { # NEED...
	for need in "$@"; do
		case $need in
		root) [ "$(id -u)" = 0 ] || echo "not root" ;;
		cgroup)
			[ -e /sys/fs/cgroup/cpu/cgroup.procs ] || [ -e /sys/fs/cgroup/cgroup.controllers ] || echo "no cgroup file system"
			;;
		*) command -v "$need" >/dev/null || echo "no $need" ;;
		esac
	done
}

fail() { # NAME TEXT
	echo "$1" >>"$failed"
	echo "FAILED   $1 $2" >>"$summary"
}

# level runs a target of the Makefile and adds a line to the summary.
level() { # NAME TARGET NEED...
	local name=$1 target=$2 lacking start=$SECONDS
	shift 2
	lacking=$(missing "$@" | paste -sd, -)
	if [ -n "$lacking" ] && [ -n "${CI:-}" ]; then
		fail "$name" "($lacking): CI skips nothing"
	elif [ -n "$lacking" ]; then
		echo "skipped  $name ($lacking)" >>"$summary"
	elif echo "=== $name (make $target)" && make --no-print-directory "$target" 2>&1 | tee "$logs/$target.log"; then
		echo "passed   $name in $((SECONDS - start)) s" >>"$summary"
	else
		fail "$name" "after $((SECONDS - start)) s: make $target; log: $logs/$target.log"
		excerpt "$logs/$target.log" >>"$summary"
	fi
}

# excerpt prints the messages of failed tests from a log.
excerpt() { # LOG
	awk '
		/^ *--- FAIL: / { show = 1; print "    " $0; next }
		/^ *(---|===) / || /^[^ ]/ { show = 0 }
		/^panic: |^make.*Error|: error: / { print "    " $0 }
		show && lines++ < 200 { print "    " $0 }
	' "$1" | cut -c1-400
}

trap 'trap - INT TERM; kill 0' INT TERM # background levels end too

test/bed/packages.sh >"$logs/packages.log" 2>&1 & # level 1 needs none of them
packages=$!
{
	renice -n 19 -p "$BASHPID" >/dev/null
	tail -f /dev/null --pid="$packages"
	level "building the test bed" bed go root etcd busybox
	level "level 1: lint" lint go
} >/dev/null &
level "level 1: pure" test-pure go
wait "$packages" || fail "installing packages" "see $logs/packages.log"
{
	level "level 3: v2 kernel" test-vm go qemu-system-x86_64
	level "level 5a: node, v1 + cgroupfs driver" test-node go root etcd runc ip
	level "level 5a: CPU manager policy static" test-node-static go root etcd runc ip
	level "level 6: YARN" test-yarn go root java mvn
	level "level 6b: YARN in pods" test-node-yarn go root etcd runc ip java mvn
} >/dev/null &
level "level 4: API server" test-api go root etcd
level "level 3: CPU sets" test-vm-cpus go qemu-system-x86_64
level "level 6c: worker pools on YARN" test-yarn-pools go root etcd ip java mvn
wait
level "level 2: live kernel" test-kernel go root cgroup
level "level 4: figures" test-api-figures go root etcd
level "level 5a: figures" test-node-figures go root etcd runc ip
level "level 5b: node, v2 + systemd driver, in a virtual machine" test-node-v2 \
	go root etcd runc ip qemu-system-x86_64 mmdebstrap

echo
cat "$summary"
echo
if [ -s "$failed" ]; then
	echo "FAILED in $((SECONDS / 60)) min: $(paste -sd';' "$failed" | sed 's/;/; /g')"
	exit 1
fi
echo "passed in $((SECONDS / 60)) min; $(grep -c ^skipped "$summary") of $(wc -l <"$summary") levels were skipped"
