#!/usr/bin/env bash
# Runs the levels of the test bed and prints at the end how each ended.
#
#   test/levels.sh short|full
#
# A level whose need is missing on this machine is skipped by name. Under CI a missing need is a failure.
#
# The order saves time on a new machine, where compiling takes most of it:
#  - The test bed is built from the first second on, at nice 19, beside level 1 and then beside level 3, whose emulated
#    machines need most CPU. Lint, the unit tests of programs for arm64 and the root file system of level 5b follow at
#    nice 19.
#  - Levels 3 to 7, without the figures that they measure, run in three lanes of equal length: what takes a virtual machine
#    or a real node, what has a cluster apart, and what has the API server of level 4.
#  - Levels that measure run alone: level 2 and the figures of levels 4 and 5a. So does level 5b, whose emulated machine
#    needs all of this one to be fast enough.
set -uo pipefail
cd "$(dirname "$0")/.."
form=${1:-short}
[ "$form" = full ] && export WATERLINE_SOAK=1
# Debug information takes a sixth of the CPU time of compilers, and what is built here is released without it too.
GOFLAGS="$(go env GOFLAGS) -gcflags=all=-dwarf=false"
export GOFLAGS
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
	local name=$1 target=$2 lacking cpu start=$SECONDS TIMEFORMAT='%U + %S'
	shift 2
	lacking=$(missing "$@" | paste -sd, -)
	if [ -n "$lacking" ] && [ -n "${CI:-}" ]; then
		fail "$name" "($lacking): CI skips nothing"
	elif [ -n "$lacking" ]; then
		echo "skipped  $name ($lacking)" >>"$summary"
	elif echo "=== $name (make $target) at $((SECONDS / 60)) min" &&
		cpu=$({ time make --no-print-directory VERBOSE=1 "$target" >"$logs/$target.log" 2>&1; } 2>&1); then
		cpu=$(awk '{ printf "%.0f", $1 + $3 }' <<<"$cpu") # of all that was waited for
		echo "passed   $name in $((SECONDS - start)) s, CPU time $cpu s$(slowest "$logs/$target.log")" | tee -a "$summary"
	else
		fail "$name" "after $((SECONDS - start)) s: make $target; log: $logs/$target.log"
		said "$logs/$target.log" >>"$summary"
		excerpt "$logs/$target.log"
	fi
}

# slowest prints the tests of a log that took most of its time, with their seconds.
slowest() { # LOG
	sed -En 's/^ *--- [A-Z]+: (Test[^ ]+) \(([0-9]+)\..*/\2 \1/p' "$1" | sort -rn |
		awk '$1 >= 20 && NR <= 6 { printf "%s%s %d", (NR > 1 ? ", " : ": "), $2, $1 }'
}

# said prints the first line of each message of failed tests. Logs of pods, which follow some, are left out.
said() { # LOG
	awk '
		/^=== RUN +[^\/]+$/ { held = 0 }
		/^ +[a-z0-9_]+_test\.go:[0-9]+: / { lines[held++] = $0 }
		/^--- FAIL: / { for (i = 0; i < held && i < 30; i++) print "    " lines[i] }
		/^ *--- FAIL: |^panic: |^make.*Error|: error: / { print "    " $0 }
	' "$1" | cut -c1-300
}

# excerpt prints the messages of failed tests from a log. A verbose test prints them before it says that it failed, and
# one that is not after that.
excerpt() { # LOG
	awk '
		/^=== RUN +[^\/]+$/ { held = 0 }
		/^--- FAIL: / { for (i = held > 200 ? held - 200 : 0; i < held; i++) print "    " lines[i]; held = 0 }
		/^ *--- FAIL: / { show = 1; print "    " $0; next }
		/^ *(---|===) / || /^[^ ]/ { show = 0 }
		/^vmrun: / { guest = 1 } # and what the guest said last, up to a line of dashes
		guest { print "    " $0; if ($0 == "---") guest = 0; next }
		/^panic: |^make.*Error|: error: / { print "    " $0; next }
		show && shown++ < 200 { print "    " $0; next }
		/^ / { lines[held++] = $0 }
	' "$1" | cut -c1-400
}

trap 'trap - INT TERM; kill 0' INT TERM # background levels end too

test/bed/packages.sh >"$logs/packages.log" 2>&1 & # level 1 needs none of them
packages=$!
{
	renice -n 19 -p "$BASHPID" >/dev/null
	tail -f /dev/null --pid="$packages"
	level "building the test bed" bed go root etcd busybox
	level "building the node of level 5b" vmnode go mmdebstrap
	level "level 1: lint" lint go
	level "level 1: arm64, emulated" test-arm64 go qemu-aarch64-static
} &
level "level 1: pure" test-pure go
wait "$packages" || fail "installing packages" "see $logs/packages.log"
{
	level "level 3: v2 kernel" test-vm go qemu-system-x86_64
	level "level 3: CPU sets" test-vm-cpus go qemu-system-x86_64
	level "level 5a: node, v1 + cgroupfs driver" test-node go root etcd runc ip
	level "level 5a: CPU manager policy static" test-node-static go root etcd runc ip
	level "level 6b: YARN and Spark in pods" test-node-yarn go root etcd runc ip java mvn python3
} &
{
	level "level 4: worker pools" test-api-pools go root etcd
	level "level 7: scheduler" test-scheduler go root etcd
	level "level 6: Trino" test-trino go root java mvn
	level "level 6c: a worker pool of Trino" test-trino-pools go root etcd ip java mvn bash
	level "level 4: dashboard in a browser" test-web go chromium npm
	level "level 6: YARN" test-yarn go root java mvn python3
} &
level "level 4: API server" test-api go root etcd
level "level 6c: worker pools on YARN" test-yarn-pools go root etcd ip java mvn
wait
level "level 2: live kernel" test-kernel go root cgroup
level "level 4: figures" test-api-figures go root etcd
level "level 5a: figures" test-node-figures go root etcd runc ip
level "level 5b: node, v2 + systemd driver, in a virtual machine" test-node-v2 \
	go root etcd runc ip qemu-system-x86_64 mmdebstrap
# The oldest version differs from the newest in what only Kubernetes changes, so it is built for the full form.
[ "$form" = full ] && level "levels 4 and 5a: the oldest Kubernetes" test-oldest go root etcd runc ip
# The controllers of other projects take minutes to build.
[ "$form" = full ] && level "level 4: batch frameworks" test-frameworks go root etcd

echo
cat "$summary"
echo
if [ -s "$failed" ]; then
	echo "FAILED in $((SECONDS / 60)) min: $(paste -sd';' "$failed" | sed 's/;/; /g')"
	exit 1
fi
echo "passed in $((SECONDS / 60)) min; $(grep -c ^skipped "$summary") of $(wc -l <"$summary") levels were skipped"
