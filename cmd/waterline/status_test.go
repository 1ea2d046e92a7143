package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/golden"
)

// ownPod is a pod of Waterline itself.
func ownPod(app, name, node string, ready corev1.ConditionStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "waterline-system", Labels: map[string]string{"app.kubernetes.io/name": app},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		},
	}
}

// inventoryOf returns the fleet as status reads it.
func inventoryOf(t *testing.T) *inventory {
	f := readFleet(t, "objects.yaml")
	return newInventory(f.Nodes, f.Reports, f.Policies, f.Pools, []corev1.Pod{
		ownPod("waterline-agent", "waterline-agent-a", "n1", corev1.ConditionTrue),
		ownPod("waterline-agent", "waterline-agent-b", "n3", corev1.ConditionFalse),
	})
}

// TestStatus checks the screen for a cluster with a node in each state and something wrong of each kind.
func TestStatus(t *testing.T) {
	var out strings.Builder
	if err := inventoryOf(t).status(noon).print(&out, true); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/cluster/status.txt", out.String())
}

// TestStatusEmpty checks the screen for a cluster without anything of Waterline, and for one where all is well.
func TestStatusEmpty(t *testing.T) {
	var out strings.Builder
	if err := newInventory(nil, nil, nil, nil, nil).status(noon).print(&out, false); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "0 nodes: none") || !strings.Contains(got, "no manager runs") {
		t.Errorf("got\n%s", got)
	}
	out.Reset()
	f := readFleet(t, "well.yaml")
	well := newInventory(f.Nodes, f.Reports, f.Policies, nil,
		[]corev1.Pod{ownPod("waterline-manager", "waterline-manager-a", "worker-8", corev1.ConditionTrue)})
	if err := well.status(noon).print(&out, false); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/cluster/well.txt", out.String())
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "\n$ waterline status\n"+out.String()+"```\n") {
		t.Errorf("README.md shows another screen than\n%s", out.String())
	}
}

// TestTop checks what top shows, and that each order of nodes and pods puts another row first than its opposite.
func TestTop(t *testing.T) {
	s := inventoryOf(t).status(noon)
	var out strings.Builder
	out.WriteString(s.headline() + "\n")
	if !sorted(s.Each, nodeOrders, "sold") || sorted(s.Each, nodeOrders, "colour") {
		t.Error("an order is not known, or one that does not exist is")
	}
	if err := topNodes(&out, s.Each, false, noon); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/cluster/top.txt", out.String())

	pods := []serve.PodUsage{
		{
			Namespace: "shop", Name: "web-0", Class: model.ClassLS, CPU: 1500, Memory: 3 << 30, Request: 2000, Weight: 4096,
			Wait: 12,
		},
		{
			Namespace: "shop", Name: "encode-7", Class: model.ClassBE, Tier: model.TierBatch, CPU: 3200, Memory: 1 << 30,
			Request: 4000, Allowance: 3500, Wait: 700, Throttled: 250,
		},
	}
	for order, first := range map[string]string{
		"cpu": "encode-7", "memory": "web-0", "wait": "encode-7", "name": "encode-7",
	} {
		if sorted(pods, podOrders, order); pods[0].Name != first {
			t.Errorf("by %s, %s is first", order, pods[0].Name)
		}
	}
	sorted(pods, podOrders, "cpu")
	out.Reset()
	if err := topPods(&out, pods, false); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/cluster/top-pods.txt", out.String())
}

// TestFrame checks that a picture is cut to its terminal, and written without clearing what stays.
func TestFrame(t *testing.T) {
	got := frame("two nodes\nNODE  CPU\nünit  1234567\nlast", 8, 3, true)
	const want = "\x1b[Htwo node\x1b[K\n\x1b[1mNODE  CP\x1b[0m\x1b[K\nünit  12\x1b[K\x1b[J"
	if got != want {
		t.Errorf("got %q", got)
	}
	if strings.Contains(frame("a\nb", 80, 24, false), "\x1b[1m") {
		t.Error("bold although no colours are wanted")
	}
}

// TestPause checks that a cluster that answers slowly is asked less often.
func TestPause(t *testing.T) {
	if a, b := pauseAfter(20*time.Millisecond), pauseAfter(3*time.Second); a != time.Second || b != 30*time.Second {
		t.Errorf("%s and %s", a, b)
	}
}

// TestWatch runs top on a terminal: it draws on the second screen, draws again after a second without clearing it,
// shows an error in place of the rows, and leaves the terminal as it was.
func TestWatch(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &cobra.Command{}
	c.SetContext(ctx)
	c.SetOut(terminal)
	w := top{sort: "name"}
	w.output.form = formText
	reads := 0
	err = watch(c, &w, podOrders, func(context.Context) ([]serve.PodUsage, string, error) {
		reads++
		switch reads {
		case 1:
			return []serve.PodUsage{{Namespace: "shop", Name: "web-0"}}, "one pod", nil
		case 2:
			return nil, "", errors.New("the agent is away")
		}
		cancel()
		return nil, "", ctx.Err()
	}, func(out io.Writer, pods []serve.PodUsage) error { return topPods(out, pods, false) })
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for screen := make([]byte, 1<<16); !strings.HasSuffix(got, toFirstScreen); {
		n, err := master.Read(screen)
		if err != nil {
			t.Fatal(err)
		}
		got += string(screen[:n])
	}
	pictures := strings.Split(got, home)
	if len(pictures) != 3 || pictures[0] != toSecondScreen || !strings.HasPrefix(pictures[1], "one pod") ||
		!strings.Contains(pictures[1], "shop/web-0") || !strings.HasPrefix(pictures[2], "no answer: the agent is away") ||
		!strings.HasSuffix(got, clearBelow+toFirstScreen) || strings.Contains(got, "\x1b[2J") {
		t.Errorf("got %q", got)
	}
}
