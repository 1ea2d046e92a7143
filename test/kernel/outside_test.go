package kernel_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/model"
)

// TestOutside lets a container runtime with another cgroup driver than the kubelet start a container: its cgroup is
// beside the pods, and the pod's own is empty. The agent and the doctor name that, and nothing may be sold, until the
// container is started again where it belongs.
func TestOutside(t *testing.T) {
	n := newNode(t)
	top := path.Dir(n.layout.Root)
	pod, runtime := n.pod(model.Burstable, "a", 500), top+"/runtime.service"
	stray := runtime + "/kubepods-burstable-poda.slice:cri-containerd:0123456789aa"
	n.mkdir(runtime)
	n.group(stray)
	source := newPods()
	set := func(id string) {
		source.set(model.Pod{
			UID: "a", APIUID: "a", Namespace: "default", Name: "a", QoS: model.Burstable, RequestMilli: 500,
			Class: model.ClassLS, Containers: []model.Container{{Name: "c", ID: id, RequestMilli: 500}},
		})
	}
	set("0123456789aa")
	notices := make(chan model.Notice, 100)
	r := n.start(source, func(c *agent.Config) {
		c.SyncPeriod = 100 * time.Millisecond
		c.API.Notify = func(_ context.Context, notice model.Notice) error { notices <- notice; return nil }
	})
	r.set(func(p *model.Policy) { p.CPU = model.SellPolicy{Method: model.SellRealtime, Waterline: 1000} })
	var wrong []model.Reason
	var slack *model.Slack
	waits := func(what string, want func() bool) {
		t.Helper()
		within(t, what, func() bool {
			err := r.agent.View(t.Context(), func(v *agent.View) { wrong, slack = v.Plan.Unsupported, v.Plan.Slack })
			return err == nil && slack != nil && want()
		}, func() string { return fmt.Sprintf("%v, %+v", wrong, slack) })
	}
	outside := func() bool { return len(wrong) > 0 && wrong[0].Code == model.PodsOutside }
	waits("the agent names it", outside)
	if wrong[0].Key != n.layout.Root || wrong[0].Text != runtime || wrong[0].Fix == "" {
		t.Errorf("it is %+v", wrong[0])
	}
	if a := &slack.CPU; a.Allow != 0 || a.Room.Batch != 0 || a.Reason.Code != model.SlackUnknown {
		t.Errorf("the account is %+v", a)
	}
	if notice := <-notices; notice.UID != "" || notice.Reason.Code != model.PodsOutside {
		t.Errorf("the first event is %+v", notice)
	}
	doctor := func() string {
		out, _ := exec.Command(binary(t, "waterline"), "doctor", "--kubepods", n.layout.Root, "--run-dir", t.TempDir(),
			"--seconds", "1").CombinedOutput()
		return string(out)
	}
	if out := doctor(); !strings.Contains(out, "BAD") || !strings.Contains(out, "outside of "+n.layout.Root) {
		t.Errorf("the doctor says\n%s", out)
	}

	n.group(pod + "/0123456789ab")
	if err := os.Remove(n.path(stray)); err != nil {
		t.Fatal(err)
	}
	set("0123456789ab")
	measured := n.mount.Cpuacct == n.mount.Path // otherwise these groups have no counters
	waits("it is started where it belongs", func() bool { return !outside() && (!measured || slack.CPU.Room.Batch > 0) })
	if out := doctor(); !strings.Contains(out, "no container of a pod is outside of "+n.layout.Root) {
		t.Errorf("then the doctor says\n%s", out)
	}
}

// TestPinned lets a container keep a CPU that its kubelet gave it under policy static, while the kubelet now has policy
// none. The container keeps it, nobody else gets it, and the owner is informed.
func TestPinned(t *testing.T) {
	n := newCPUNode(t)
	pinned := n.pod(model.Guaranteed, "a", 1000, "0123456789aa") + "/0123456789aa"
	home := n.pod(model.Burstable, "b", 1000, "0123456789bb") + "/0123456789bb"
	file := n.cpusets(pinned, "cpuset.cpus")
	first := fmt.Sprint(lowest(n.all))
	if err := os.WriteFile(file, []byte(first), 0); err != nil {
		t.Fatal(err)
	}
	notices := make(chan model.Notice, 100)
	r := n.start(n.source, func(c *agent.Config) {
		c.SyncPeriod = 100 * time.Millisecond
		c.API.Notify = func(_ context.Context, notice model.Notice) error { notices <- notice; return nil }
	})
	app := func(uid, id string, q model.QoSClass, mode model.CPUMode) {
		n.source.set(model.Pod{
			UID: uid, APIUID: uid, Namespace: "default", Name: uid, QoS: q, RequestMilli: 1000, LimitMilli: 1000,
			Class: model.ClassLS, Annotations: model.PodAnnotations{CPUs: mode},
			Containers: []model.Container{{Name: "c", ID: id, RequestMilli: 1000, LimitMilli: 1000}},
		})
	}
	app("a", "0123456789aa", model.Guaranteed, "")
	within(t, "its owner is informed", func() bool {
		select {
		case notice := <-notices:
			return notice.UID == "a" && notice.Reason.Code == model.CPUsPinned && notice.Reason.Text == first
		default:
			return false
		}
	}, func() string { return "no event" })
	app("b", "0123456789bb", model.Burstable, model.CPUShare)
	within(t, "another pod has a home", func() bool { return n.list(home, "cpuset.cpus").Len() == 1 },
		func() string { return n.text(home, "cpuset.cpus") })
	if list := n.list(home, "cpuset.cpus"); list.String() == first {
		t.Errorf("the home of the other pod is CPU %s too", first)
	}
	if list := n.list(pinned, "cpuset.cpus"); list.String() != first {
		t.Errorf("the container runs on %s, not on %s", list, first)
	}
	r.stop()
}

// lowest returns the first CPU of a set.
func lowest(set model.CPUSet) int {
	for id := range set.All() {
		return id
	}
	return -1
}
