package node

import (
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestQuotaHasPeriod checks that each quota names its period, and that a batch container may use no more than its limit
// and its pod, whatever period the kubelet has: in a period of 1 ms, the kernel's least quota is a whole CPU.
func TestQuotaHasPeriod(t *testing.T) {
	for _, period := range []int64{1000, 5000, 10_000, 100_000, 1_000_000} {
		for _, limit := range []int64{10, 333, 500, 2000} {
			n := fixture.Node(model.Amount{CPU: 8000})
			n.Kubelet.QuotaPeriod = period
			pod := fixture.BatchPod("job", model.Amount{})
			pod.Grant = model.Grant{RequestMilli: limit, LimitMilli: limit}
			pod.Containers = []model.Container{{Name: "c", ID: "0123456789ab", Grant: pod.Grant}}
			fixture.Run(&n, pod, "0123456789ab")
			dir := n.Tree.Pods["job"].Dir
			n.Owned = []model.Owned{{
				File: model.File{Dir: dir + "/gone", Knob: model.Quota},
				Ours: model.QuotaOf(limit, period), Theirs: model.Value{Number: 7000, Period: 7000},
			}}
			plan, _ := Decide(n, fixture.Policy(), State{})
			of := map[string]model.Value{}
			for _, s := range plan.Settings {
				if s.Knob == model.Quota {
					of[s.Dir] = s.Value
				}
			}
			whole, part := of[dir], of[dir+"/0123456789ab"]
			if got := part.QuotaCPUs() * 1000; got > float64(limit) || got < float64(limit)-1 || part.Period == 0 {
				t.Errorf("period %d, limit %d: the container may use %+v", period, limit, part)
			}
			if part.QuotaCPUs() > whole.QuotaCPUs() || whole != model.QuotaOf(limit, model.DefaultQuotaPeriod) {
				t.Errorf("period %d, limit %d: container %+v, pod %+v", period, limit, part, whole)
			}
			if got := of[dir+"/gone"]; got != n.Owned[0].Theirs {
				t.Errorf("a recorded quota is restored as %+v", got)
			}
			pod.Grant, pod.Containers[0].Grant = model.Grant{}, model.Grant{}
			n.Owned[0].Dir = dir
			plan, _ = Decide(n, fixture.Policy(), State{})
			for _, s := range plan.Settings {
				if want := (model.Value{Number: model.Unlimited, Period: 7000}); s.File == n.Owned[0].File && s.Value != want {
					t.Errorf("without a limit: %+v", s)
				}
			}
		}
	}
}
