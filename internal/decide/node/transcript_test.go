package node_test

import (
	"testing"

	"github.com/waterline-io/waterline/test/golden"
)

// TestTranscripts runs the golden cases of every rule. A case is a text file of blocks. A block is commands, a line of
// four dashes, and what was decided. Between blocks the host is imagined to do all that the plan says.
//
//	node cpu=64 [kubelet=unknown|noquota|static|nopodcgroups] [readonly] [v2] [cpus=2x1x2x4x2] [offline=LIST]
//	    [reserved=LIST] [pool=LIST] [taken=LIST] [nocpusets] [noburst|burst] [isolated=LIST]
//	    [allowed=LIST] [outside=none|POD:DIR] [unread=WHAT_TO_DO]
//	policy [mode=M] [scope=S] [quota=Q] [max=N; 0: as the pod's CPUs] [override] [namespace=key:value:max]
//	    [allow=none|key:value:PRIVILEGE+...; without it every pod has every privilege]
//	    [pods=key:value:shares] [cpus=key:value:MODE] [burst] [isolated: isolated CPUs are used]
//	pod NAME class=C [request=MILLI] [limit=MILLI] [weight=N] [quota=Q] [self] [critical] [ended] [idle] [nocgroup]
//	    [mirror: of a static pod] [namespace=NAME]
//	    [label=key:value] [space=key:value] [containers=ID:LIMIT,...] [cpus=MODE] [place=P] [hint=LIST]
//	    [app=NAME:CPUS[:REQUEST]]... [becomes=NAME:CPUS]
//	    [list=CPUS: its last container's own list, from another writer] [worker: of a pool]
//	    [podlevel=CPUS] [age=SECONDS] [localmemory=BYTES] [job=NAME:CPUS[:LIMIT[:MEMORY]]]...
//	gone NAME                         deleted NAME (its cgroup still stands)
//	uses DIR MEMORY                   what the group uses, below which the host writes no limit
//	pods unknown|known|kept
//	confined DIR LIST
//	overwritten DIR KNOB VALUE        rejected DIR KNOB VALUE ERRNO        fight DIR KNOB DURATION
//	tick DURATION                     decide (a round that is not shown)
//	node real=CPUS[/MEMORY] capacity=CPUS[/MEMORY] allocatable=CPUS[/MEMORY] reservedcpu=CPUS
//	    reservedmemory=MEMORY watermark=MEMORY
//	policy cpu=METHOD:WATERLINE[:MID[:RATIO]] memory=METHOD:WATERLINE[:MID[:RATIO]], in thousandths; METHOD none:
//	    nothing is sold; koordinator: the cluster's names are Koordinator's
//	pod ... [qos=CLASS] [used=CPUS/MEMORY] [usedage=DURATION] [memory=MEMORY] [mid=CPUS/MEMORY] [batch=CPUS/MEMORY]
//	    [koordinator]
//	load node=CPUS/MEMORY pods=CPUS/MEMORY [age=DURATION]    measured in each following round; needs node real
//	policy suppress=METHOD[:MINBATCH]    MINBATCH in thousandths; class=Idle|GroupIdentity; interference
//	node noidle nopressure noidentity=WHY    what the kernel has not
//	policy protectmemory; node kubelet=memoryqos qoscontainers noprotection=WHY
//	pod ... [cache=COLD/ALL] [thrashes=PART] [stalls=PART]    page cache; for memory, in thousandths of the time; node
//	    noreclaim
//	policy evict=PERHOUR; pod ... [evict=never|first] [leaving=GRACE]
//	reclaiming yes|no                 reclaimed UID ASKED FREED [ERROR]    what came of asking a pod for memory
//	load best=CPUS                    of class BestEffort
//	pod ... [waits=PART] [throttled=PERIODS]    for a CPU, in thousandths of the time; by the pod's own quota
//	pod ... [delays=PART]    of its tasks, in thousandths of the time that they ran; -1: they are not sampled
//	policy service=KEY:VALUE:MAX[:prometheus]    the figure of pods with that label, from a port or from Prometheus
//	figure POD VALUE [age=DURATION] [failed=WHY]    what the pod's service says, where a round wants to know it
//	inside POD CONTAINER CPUS [PERIODS]    what a container uses, and in how many periods its quota stops it
//	brief                             accounts are not printed any more
//	load none                         nothing was measured yet; load off: there is no measurement at all
//	peak hour=CPUS/MEMORY [day=CPUS/MEMORY]    what the predictor says
//	withdrawn yes|no                  by the manager
//	run DURATION                      a round each second, not shown
//	clock DURATION                    the wall clock is set forward; back if it is negative
//	room                              from now on, also print the room for pods that request their own CPUs
//	busy                              also print the CPU that each pod gets while all of them want everything
func TestTranscripts(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		w := newWorld()
		return golden.Blocks(t, content, w.do, w.decide)
	}, "testdata/*.txt", "*/testdata/*.txt")
}
