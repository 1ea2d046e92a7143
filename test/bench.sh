#!/usr/bin/env bash
# make bench: measures what docs/results.md reports, into out/bench. On a machine that does something else at the same
# time, the ratios hold and the absolute figures do not.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p out/bench
for name in weights preempt drift hierarchy cpuset burst; do
	echo "=== $name"
	case $name in cpuset) json=experiment-cpuset ;; *) json=$name ;; esac
	out/bin/waterline experiment $name --json out/bench/$json.json
	case $name in hierarchy | cpuset | burst) continue ;; esac
	echo "=== $name, while a pod of 262144 burns all CPUs"
	out/bin/waterline experiment $name --hog --json out/bench/$name-hog.json
done
echo "=== colocate: twenty-five minutes"
out/bin/lab colocate --load 30 --load 60 --load 90 --json out/bench/colocate-harm.json
for kind in stream cache writers forks; do
	echo "=== colocate beside $kind: seven minutes"
	out/bin/lab colocate --batch $kind --load 60 --repeats 3 --json out/bench/colocate-$kind.json
done
echo "=== headline, with a day of ../shared/traces: twenty-one minutes"
out/bin/lab headline --trace "${WATERLINE_TRACES:-../shared/traces}" --json out/bench/headline.json --svg out/bench/headline.svg
echo "=== suppress: forty minutes"
out/bin/lab suppress --json out/bench/suppress.json
echo "=== interference: thirty-six minutes"
out/bin/lab interference --json out/bench/interference.json
echo "=== agent: ten minutes"
WATERLINE_BENCH=$PWD/out/bench/agent.json go test -count=1 -timeout 30m -v ./test/e2e -run TestAPIFigures -args -on=api | grep -v '^{'
echo "=== CPU sets: fourteen minutes"
WATERLINE_BENCH=$PWD/out/bench/cpuset.json go test -count=1 -timeout 40m -v ./test/e2e -run TestAPICPUFigures -args -on=api | grep -v '^{'
echo "=== the agent with everything on: ten minutes"
WATERLINE_BENCH=$PWD/out/bench/protect.json go test -count=1 -timeout 40m -v ./test/e2e -run TestAPIProtectFigures -args -on=api | grep -v '^{'
echo "=== the manager and the API, with 5,000 nodes that use what ../shared/traces says: ten minutes"
WATERLINE_BENCH=$PWD/out/bench/scale.json go test -count=1 -timeout 40m -v ./test/e2e -run TestAPIScaleFigures -args -on=api | grep -v '^{'
echo "=== the scheduler beside the stock one, 10,000 pods on 1,000 nodes: seven minutes"
WATERLINE_BENCH=$PWD/out/bench/scheduler.json go test -count=1 -timeout 60m -v ./test/e2e -run TestSchedulerFigures -args -on=api | grep -v '^{'
echo "=== four ffmpeg jobs on two nodes, placed by it and by the stock one: a minute"
WATERLINE_BENCH=$PWD/out/bench/scheduler-jobs.json go test -count=1 -timeout 20m -v ./test/e2e -run TestSchedulerJobs -args -on=api | grep -v '^{'
echo "=== a pool of 500 NodeManagers, with a fake ResourceManager: seven minutes"
WATERLINE_BENCH=$PWD/out/bench/yarn.json go test -count=1 -timeout 40m -v ./test/e2e -run TestAPIPoolFigures -args -on=api | grep -v '^{'
echo "=== a night of jobs on a pool of real NodeManagers, and resizes: ten minutes"
WATERLINE_BENCH=$PWD/out/bench/yarn.json go test -count=1 -timeout 40m -v ./test/e2e -run 'TestPoolNight|TestPoolHarm/Resize' -args -on=yarn | grep -v '^{'
echo "=== Spark beside Redis, in NodeManagers in pods of a real node: fifteen minutes"
make --no-print-directory yarn-bed hadoop-image spark
WATERLINE_BENCH=$PWD/out/bench/yarn.json go test -count=1 -timeout 40m -v ./test/e2e -run TestYARNSpark | grep -v '^{'
echo "=== transcode, on a cluster of this machine"
up=$(test/bed/cluster.sh up)
trap 'test/bed/cluster.sh down' EXIT
eval "$(grep -o 'export KUBECONFIG=.*' <<<"$up")"
out/bin/lab transcode --json out/bench/transcode.json
test/bed/cluster.sh down
trap - EXIT
go test -run '^$' -bench . -benchmem ./internal/decide/... ./internal/cgroup | tee out/bench/go.txt
