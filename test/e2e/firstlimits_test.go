package e2e_test

import (
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// limitFiles returns the files in which a container finds its memory limit and its quota.
func (n *node) limitFiles() []string {
	if n.Version == cgroup.V2 {
		return []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max"}
	}
	return []string{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"}
}

// ownLimits returns what a container reads from these files if its limits are such; 0: it has none.
func (n *node) ownLimits(memory, milli int64) string {
	quota := int64(model.Unlimited)
	if milli != 0 {
		quota = model.MilliCPUToQuota(milli, model.DefaultQuotaPeriod)
	}
	limit := fmt.Sprint(memory)
	if memory == 0 {
		limit = "max"
	}
	if n.Version == cgroup.V2 {
		return fmt.Sprintf("%s\n%s %d", limit, n.text(model.Quota, quota), model.DefaultQuotaPeriod)
	}
	if memory == 0 {
		limit = fmt.Sprint(math.MaxInt64 - math.MaxInt64%int64(os.Getpagesize()))
	}
	return limit + "\n" + n.text(model.Quota, quota)
}

// testFirstInstruction checks that the first instruction of a batch container reads the limits of its spec.
func (n *node) testFirstInstruction() {
	n.sold(false, "the node has an offer", func(free int64) bool { return free >= 100 })
	got := n.onlyAct("first", "BE", "requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 64Mi}",
		"cat, "+strings.Join(n.limitFiles(), ", "))
	if want := n.ownLimits(64<<20, 200); got != want {
		n.t.Errorf("a batch container began with the limits %q, want %q", got, want)
	}
	kubectl(n.t, "delete", "pod", "first", "--grace-period=0", "--force")
}
