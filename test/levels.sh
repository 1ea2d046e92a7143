#!/usr/bin/env bash
# Runs the levels of the test bed and prints at the end how each ended.
#
#   test/levels.sh test|all|soak
#
#   test  a few tests of every level, in at most 40 minutes; usual are 20 on a new machine and 9 on a known one
#   all   all tests, in short forms
#   soak  all tests, in their full forms
#
# A level whose need is missing on this machine is skipped by name. Under CI a missing need is a failure.
#
# Levels run in lanes beside each other, because most of a level is waiting. Nothing in them depends on how fast the machine
# is: what measures it is in test/bench.sh. On a new machine compiling takes most of the time, so the test bed is built from
# the first second on.
set -uo pipefail
set -m # lanes are process groups
cd "$(dirname "$0")/.."
form=${1:-test}
unset SHORT WATERLINE_SOAK # of this shell's caller
case $form in
test) export SHORT=1 ;;
all) ;;
soak) export WATERLINE_SOAK=1 ;;
*)
	echo "usage: $0 test|all|soak" >&2
	exit 2
	;;
esac
logs=out/test/log summary=out/test/log/summary failed=out/test/log/failed running=out/test/log/running
rm -rf "$running"
mkdir -p "$logs" "$running"
rm -f "$logs"/*.log "$logs"/done-*
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
	echo "FAILED   $1 $2" | tee -a "$summary"
}

# level runs a target of the Makefile and adds a line to the summary.
level() { # NAME TARGET NEED...
	local name=$1 target=$2 lacking cpu start=$SECONDS TIMEFORMAT='%U + %S'
	shift 2
	lacking=$(missing "$@" | paste -sd, -)
	if [ -n "$lacking" ] && [ -n "${CI:-}" ]; then
		fail "$name" "($lacking): CI skips nothing"
		return
	elif [ -n "$lacking" ]; then
		echo "skipped  $name ($lacking)" >>"$summary"
		return
	fi
	echo "=== $name (make $target) at $((SECONDS / 60)) min"
	: >"$running/$target"
	if cpu=$({ time make --no-print-directory VERBOSE=1 "$target" >"$logs/$target.log" 2>&1; } 2>&1); then
		cpu=$(awk '{ printf "%.0f", $1 + $3 }' <<<"$cpu") # of all that was waited for
		if [[ $target == test-* ]] && ! grep -q '^--- PASS' "$logs/$target.log"; then
			fail "$name" "ran no test: make $target; log: $logs/$target.log"
			rm "$running/$target"
			return
		fi
		echo "passed   $name in $((SECONDS - start)) s, CPU time $cpu s" | tee -a "$summary"
	else
		fail "$name" "after $((SECONDS - start)) s: make $target; log: $logs/$target.log"
		said "$logs/$target.log" >>"$summary"
		excerpt "$logs/$target.log"
	fi
	rm "$running/$target"
}

# slowest prints the ten tests that took longest, with their seconds and levels.
slowest() {
	local log
	for log in "$logs"/*.log; do
		sed -En "s|^--- [A-Z]+: (Test[^ ]+) \\(([0-9.]+)s\\).*|\\2 s  \\1 ($(basename "$log" .log))|p" "$log"
	done | sort -rn | head -10
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

# stop ends all lanes, and with them this script, after a message.
stop() { # MESSAGE
	trap - INT TERM USR1
	echo "$1; it was running: $(ls "$running" | paste -sd' ' -)"
	for lane in "${lanes[@]}" $limit; do kill -- "-$lane"; done 2>/dev/null
	exit 1
}

lanes=()
lane() { # FUNCTION
	{ "$1" && : >"$logs/done-$1"; } &
	lanes+=($!)
}
after() { tail -f /dev/null --pid="$1"; } # a lane's end

trap 'stop "FAILED: ended by a signal"' INT TERM
trap 'stop "FAILED: make test ends after 40 minutes"' USR1
limit=
if [ "$form" = test ]; then
	{ sleep 2400 && kill -USR1 $$; } >/dev/null 2>&1 &
	limit=$!
fi

packages() {
	test/bed/packages.sh $([ "$form" = test ] && echo test) >"$logs/packages.log" 2>&1 ||
		fail "installing packages" "see $logs/packages.log"
}
lane packages
packages=$!

building() {
	after "$packages"
	level "building the test bed" bed go root busybox
}
lane building
bed=$!

case $form in
test)
	first() {
		level "level 1: pure" test-pure go
		level "level 2: live kernel" test-kernel go root cgroup
		after "$packages"
		level "level 6: YARN" test-yarn go root java mvn
	}
	second() {
		after "$packages"
		level "level 3: v2 kernel" test-vm go qemu-system-x86_64
		after "$bed"
		level "level 5a: node" test-node go root etcd runc ip
		level "level 7: scheduler" test-scheduler go root etcd
	}
	third() {
		after "$bed"
		level "level 4: API server" test-api go root etcd
	}
	;;
*)
	first() {
		level "level 1: pure" test-pure go
		level "level 1: lint" lint go
		after "$packages"
		level "level 1: arm64, emulated" test-arm64 go qemu-aarch64-static
		level "level 2: live kernel" test-kernel go root cgroup
		level "level 2: an agent for arm64, emulated" test-arm64-agent go root cgroup qemu-aarch64-static
		level "level 4: dashboard in a browser" test-web go chromium npm
		level "level 6: YARN" test-yarn go root java mvn python3
		level "level 6: Trino" test-trino go root java mvn
		level "a release" test-release go docker-registry skopeo qemu-aarch64-static
	}
	second() {
		after "$packages"
		level "level 3: v2 kernel" test-vm go qemu-system-x86_64
		level "level 3: CPU sets" test-vm-cpus go qemu-system-x86_64
		level "level 6: YARN, v2 kernel" test-yarn-v2 go java mvn qemu-system-x86_64
		after "$bed"
		level "level 5a: node, v1 + cgroupfs driver" test-node go root etcd runc ip
		level "level 5a: CPU manager policy static" test-node-static go root etcd runc ip
		level "level 5b: node, v2 + systemd driver, in a virtual machine" test-node-v2 \
			go root etcd runc ip qemu-system-x86_64 mmdebstrap
	}
	third() {
		after "$bed"
		level "level 4: worker pools" test-api-pools go root etcd
		level "level 7: scheduler" test-scheduler go root etcd
		level "level 6c: worker pools on YARN" test-yarn-pools go root etcd ip java mvn
		level "level 6c: a worker pool of Trino" test-trino-pools go root etcd ip java mvn bash
		level "level 4: API server" test-api go root etcd
		[ "$form" = soak ] || return 0
		# The oldest version differs from the newest in what only Kubernetes changes, so it is built for the full form. So are
		# the controllers of other projects.
		level "levels 4 and 5a: the oldest Kubernetes" test-oldest go root etcd runc ip
		level "level 4: batch frameworks" test-frameworks go root etcd
	}
	;;
esac
lane first
lane second
lane third
wait "${lanes[@]}"
if [ "$form" != test ]; then # pools get what other programs leave of the machine, so these run alone
	level "level 5a: node, alone" test-node-alone docker-registry go root etcd runc ip
	level "level 6b: YARN and Spark in pods" test-node-yarn go root etcd runc ip java mvn python3
fi
[ -z "$limit" ] || kill -- "-$limit"
for name in packages building first second third; do
	[ -e "$logs/done-$name" ] || fail "lane $name" "ended early: see what is the last line above"
done

{
	echo
	cat "$summary"
	echo
	echo "the slowest tests:"
	slowest
	echo
} | tee "$logs/result"
if [ -s "$failed" ]; then
	echo "FAILED in $((SECONDS / 60)) min: $(paste -sd';' "$failed" | sed 's/;/; /g')"
	exit 1
fi
echo "passed in $((SECONDS / 60)) min; $(grep -c ^skipped "$summary") of $(wc -l <"$summary") levels were skipped"
