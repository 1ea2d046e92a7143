#!/usr/bin/env bash
# make bench: measures what docs/results.md reports, into out/bench, on a machine that does nothing else. Beside other work,
# ratios hold and absolute figures do not.
#
#   test/bench.sh [NAME]
#
# Without a NAME it runs all benches below, and goes on where a run of the same commit was interrupted. A figure that misses
# its goal ends nothing: the bench's output says so, in out/bench/log, and a list of such benches comes last.
set -uo pipefail
cd "$(dirname "$0")/.."
only=${1:-}
out=$PWD/out/bench
done=$out/done/$(git describe --always --dirty)
export WATERLINE_ATTEMPTS=$out/attempts.jsonl # each attempt of a figure that may be measured again
mkdir -p "$done"
mkdir -p "$out/log"
trap 'echo "interrupted; the next run goes on here"; exit 130' INT TERM
found= failed=()

# bench runs a command, unless it ended well for this commit before.
bench() { # NAME MINUTES COMMAND...
	local name=$1 minutes=$2
	shift 2
	[ -z "$only" ] || [ "$only" = "$name" ] || return 0
	found=1
	if [ -z "$only" ] && [ -e "$done/$name" ]; then
		echo "=== $name: measured before"
		return 0
	fi
	echo "=== $name: about $minutes min, at $(date +%H:%M)"
	if "$@" 2>&1 | tee "$out/log/$name"; then
		touch "$done/$name"
	else
		failed+=("$name")
	fi
}

# experiment measures on this kernel, once more while a pod of 262144 burns all CPUs if a second argument says so.
experiment() { # NAME [hog]
	local json=$out/$1
	[ "$1" = cpuset ] && json=$out/experiment-cpuset
	out/bin/lab "$1" --json "$json.json" && { [ -z "${2:-}" ] || out/bin/lab "$1" --hog --json "$json-hog.json"; }
}

lab() { # NAME ARGUMENT...
	local json=$1
	shift
	out/bin/lab "$@" --json "$out/$json.json"
}

# lab_pool simulates a day of a worker pool through its stages, with the chart docs/stages.svg.
lab_pool() {
	lab simulate-pool pool --trace "${WATERLINE_TRACES:-../shared/traces}" --dataset cloudcluster --nodes 24 \
		--svg "$out/stages.svg"
}

# figures prints a regular expression for the tests that measure: those in files with the build tag bench.
figures() { # FILE...
	grep -l '^//go:build bench' "$@" | xargs sed -n 's/^func \(Test[A-Za-z0-9]*\)(.*/\1/p' | paste -sd'|' | sed 's/.*/^(&)$/'
}

kernel() {
	local run
	run=$(figures test/kernel/*_test.go)
	go test -c -vet=off -tags bench -o out/test/kernel-bench.test ./test/kernel &&
		(cd test/kernel && WATERLINE_BIN=$PWD/../../out/bin ../../out/test/kernel-bench.test -test.v -test.timeout=3h \
			-test.run="$run")
}

# kernel_figures runs one bench of test/kernel, for its figures. The bench kernel runs the same one in a short form.
kernel_figures() { # JSON TEST
	make --no-print-directory build >/dev/null && go test -c -vet=off -tags bench -o out/test/kernel-bench.test ./test/kernel &&
		(cd test/kernel && WATERLINE_BENCH=$out/$1.json WATERLINE_BIN=$PWD/../../out/bin \
			../../out/test/kernel-bench.test -test.v -test.timeout=2h -test.run="^$2\$")
}

# kernel_v2 measures, in the virtual machine, what must not be tried on this machine's kernel.
kernel_v2() {
	make --no-print-directory build vm >/dev/null &&
		go test -c -vet=off -tags bench -o out/test/kernel-bench.test ./test/kernel &&
		out/bin/vmrun -file out/test/kernel-bench.test=/t/kernel.test -file out/bin/waterline-agent=/bin/waterline-agent \
			-e WATERLINE_BIN=/bin -timeout 30m -run 'kernel: /t/kernel.test -test.v -test.run=^TestClockCost$'
}

# memory measures in the virtual machine, whose cgroup v2 protects memory, with two disks in memory.
memory() {
	make --no-print-directory build vm >/dev/null &&
		out/bin/vmrun -mem 768 -module brd -file out/bin/lab=/bin/lab -file out/bin/waterline-agent=/bin/waterline-agent \
			-timeout 30m -o "$out/vm" -run 'load: insmod /lib/modules/brd.ko rd_nr=2 rd_size=98304' \
			-run 'memory: /bin/lab memory --disk /dev/ram0,/dev/ram1 --json /out/memory.json' &&
		mv "$out/vm/memory.json" "$out/memory.json"
}

# packages measures what functions cost, one package after another.
packages() {
	local files
	mapfile -t files < <(git ls-files 'internal/*_test.go')
	go test -tags bench -count=1 -p 1 -v -run "$(figures "${files[@]}")" ./internal/... | grep -vE 'no test|^(ok|testing:)' &&
		go test -C k8s -tags bench -count=1 -v -run "$(figures k8s/scheduler/*_test.go)" -bench . ./scheduler &&
		go test -tags bench -run '^$' -bench . -benchmem ./internal/decide/... ./internal/cgroup ./internal/journal | tee "$out/go.txt"
}

# e2e runs benches of test/e2e.
e2e() { # JSON REGEX ARGUMENT...
	local json=$1 regex=$2
	shift 2
	local -x WATERLINE_BENCH=
	[ "$json" = - ] || WATERLINE_BENCH=$out/$json.json
	make --no-print-directory bed >/dev/null && go test -c -vet=off -tags bench -o out/test/e2e-bench.test ./test/e2e &&
		(cd test/e2e && ../../out/test/e2e-bench.test -test.v -test.timeout=1h -test.run="$regex" "$@" | grep -v '^{')
}

yarn() { # JSON REGEX ARGUMENT...
	make --no-print-directory yarn-bed >/dev/null && e2e "$@"
}

pods() { # JSON REGEX
	make --no-print-directory bed-dns yarn-bed hadoop-image spark-image >/dev/null && e2e "$@"
}

node() { # JSON REGEX
	make --no-print-directory bed-ffmpeg >/dev/null && e2e "$@"
}

release() { # JSON
	WATERLINE_BENCH=$out/$1.json make --no-print-directory test-release
}

node_v2() { # JSON REGEX ARGUMENT...
	make --no-print-directory vmnode previous >/dev/null && e2e "$@"
}

transcode() {
	local up status
	make --no-print-directory bed >/dev/null && test/bed/build.sh ffmpeg && up=$(test/bed/cluster.sh up) || return 1
	eval "$(grep -o 'export KUBECONFIG=.*' <<<"$up")"
	out/bin/lab transcode --json "$out/transcode.json"
	status=$?
	test/bed/cluster.sh down
	return $status
}

for name in weights preempt drift; do bench $name 1 experiment $name hog; done
for name in cpuset burst; do bench $name 1 experiment $name; done
bench colocate 25 lab colocate-harm colocate --load 30 --load 60 --load 90
for kind in stream cache writers forks; do
	bench colocate-$kind 9 lab colocate-$kind colocate --batch $kind --load 60 --settle 180 --repeats 2
done
bench colocate-steps 6 lab colocate-steps colocate --steps --load 60 --seconds 40 --repeats 1
bench headline 21 lab headline headline --trace "${WATERLINE_TRACES:-../shared/traces}" --svg "$out/headline.svg"
bench kernel 60 kernel
bench kernel-v2 3 kernel_v2
bench memory 5 memory
bench guard 7 kernel_figures guard TestGuardCost
bench suppress 20 kernel_figures suppress TestSuppressDelay
bench interference 28 kernel_figures interference TestInterferenceFigures
bench hierarchy 1 kernel_figures hierarchy TestHierarchyFigures
bench agent 10 e2e agent TestAPIFigures -on=api
bench agent-cpusets 14 e2e cpuset TestAPICPUFigures -on=api
bench agent-protect 10 e2e protect TestAPIProtectFigures -on=api
bench pause 5 e2e pause TestAPIPauseFigures -on=api # 5,000 nodes that follow one API server
bench manager 10 e2e scale TestAPIScaleFigures -on=api # 5,000 nodes that use what ../shared/traces says
bench prometheus 14 e2e - TestAPIPrometheusFigures -on=api
bench faults 12 e2e - 'TestAPI(Away|Handover|PoolEvict)Figures' -on=api
bench predict 15 lab predict predict --trace "${WATERLINE_TRACES:-../shared/traces}"
bench simulate-pool 5 lab_pool
bench scheduler 30 e2e scheduler TestSchedulerFigures -on=api # 10,000 pods on 1,000 nodes, beside the stock one
bench scheduler-node 7 e2e scheduler-node TestNodeSchedulerFigures -on=host
bench scheduler-jobs 1 e2e scheduler-jobs TestSchedulerJobsFigures -on=api
bench pools 18 e2e yarn-pools TestAPIPoolFigures -on=api # 500 and 2,000 NodeManagers, with a fake ResourceManager
bench pools-yarn 10 yarn yarn 'TestPool(Night|Harm)Figures' -on=yarn
bench pools-pressure 10 yarn yarn-pressure TestPoolPressureFigures -on=yarn
bench pods-guard 8 pods yarn-guard TestYARNGuardFigures
bench pods-spark 15 pods yarn-spark TestYARNSpark # beside Redis, on a real node
bench pods-yarn 10 pods yarn 'TestSparkNativeFigures|TestYARNPoolFigures'
bench node 90 node - 'TestNode(Figures|SellFigures|NRIFigures|Harm|Measure|TranscodeFigures|QuickstartFigures|Colocate|Headline)'
bench node-v2 15 node_v2 - TestNodeFigures -on=vm
bench node-simulated 5 node simulated-node TestNodeSimulateFigures
bench transcode 8 transcode
bench packages 15 packages
bench release 10 release release

if [ -z "$found" ]; then
	echo "there is no bench $only; test/bench.sh has their names" >&2
	exit 2
fi
if [ ${#failed[@]} -gt 0 ]; then
	echo "missed a goal, or did not run; out/bench/log says which: ${failed[*]}"
	exit 1
fi
