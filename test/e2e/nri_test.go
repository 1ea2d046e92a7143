package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/nri"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// placer answers a real container runtime in place of an agent. The test chooses the CPUs.
type placer struct {
	*nri.Client
	mu      sync.Mutex
	cpus    map[string]string // pod → CPUs
	seen    map[string]model.RuntimeContainer
	reports []string
}

func (p *placer) put(pod, cpus string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cpus[pod] = cpus
}

func (p *placer) saw(id string) (model.RuntimeContainer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.seen[id]
	return c, ok
}

func (p *placer) note(c model.RuntimeContainer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[c.ID] = c
}

// newPlacer connects to the container runtime of the node on this machine.
func newPlacer(t *testing.T) *placer {
	t.Helper()
	socket, err := bed.Outside("/run/nri/nri.sock")
	if err != nil {
		t.Fatal(err)
	}
	p := &placer{cpus: map[string]string{}, seen: map[string]model.RuntimeContainer{}}
	p.Client = nri.New(nri.Config{
		Socket: socket, Name: "placer",
		Place: func(c model.RuntimeContainer) (model.Placement, bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return model.Placement{CPUs: p.cpus[c.Pod]}, p.cpus[c.Pod] != ""
		},
		Start: func(_ context.Context, c model.RuntimeContainer) { p.note(c) },
		Runs:  p.note,
		Report: func(about string, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.reports = append(p.reports, fmt.Sprint(about, ": ", err))
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
		t.Logf("%+v, reported %q", p.Stats(), p.reports)
	})
	p.await(t)
	return p
}

func (p *placer) await(t *testing.T) {
	t.Helper()
	eventually(t, "the container runtime sends a request", func() (bool, string) {
		return p.Stats().Connected,
			fmt.Sprintf("%+v", p.Stats())
	})
}

func (n *node) setCPUs(dir, list string) {
	n.t.Helper()
	if err := n.writeFile(n.path(dir, model.Cpuset), []byte(list)); err != nil {
		n.t.Fatal(err)
	}
}

// firstAct runs a pod whose only action is to print its allowed CPUs.
func (n *node) firstAct(name string) string {
	n.t.Helper()
	_, list, _ := strings.Cut(n.onlyAct(name, "", "", "grep, Cpus_allowed_list, /proc/self/status"), ":")
	return strings.TrimSpace(list)
}

// onlyAct runs a pod for a command, and returns the command's output.
func (n *node) onlyAct(name, class, resources, command string) string {
	n.t.Helper()
	labels := ""
	if class != "" {
		labels = v1alpha1.LabelQoS + ": " + class
	}
	apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {%s}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  restartPolicy: Never
  containers: [{name: c, image: "%s", imagePullPolicy: Never, command: [%s], resources: {%s}}]
`, name, labels, n.name, cluster.BusyboxImage, command, resources))
	eventually(n.t, name+" has run", func() (bool, string) {
		phase := object[corev1.Pod](n.t, "pod", name).Status.Phase
		return phase == corev1.PodSucceeded, string(phase)
	})
	return strings.TrimSpace(kubectl(n.t, "logs", name))
}

// testOOMScore checks that with protect.memory, containers start with another oom_score_adj than the kubelet's.
func (n *node) testOOMScore() {
	n.policy(`{"mode": "Enforce", "cpu": {"suppression":"None"}, "protect": {"memory": true}}`)
	eventually(n.t, "the node follows the policy", func() (bool, string) {
		is := object[v1alpha1.NodeReport](n.t, "nodereport", n.name).Status.Policy
		return is == "test", is
	})
	of := object[corev1.Node](n.t, "node", n.name)
	kubelets := min(1000-1000*(8<<20)/of.Status.Capacity.Memory().Value(), 999) // for 8 MiB
	cases := []struct{ name, class, resources, want string }{
		{"score-nothing", "", "", "500"}, // the kubelet's 1000
		{"score-little", "", "requests: {memory: 8Mi}", fmt.Sprint(kubelets / 2)},
		{"score-batch", "BE", "requests: {memory: 8Mi}", "1000"},
	}
	for _, c := range cases {
		got := ""
		// Once, the agent may read of a pod only after the runtime made its container.
		for try := 0; try < 3 && got != c.want; try++ {
			name := fmt.Sprintf("%s-%d", c.name, try)
			got = n.onlyAct(name, c.class, c.resources, "cat, /proc/self/oom_score_adj")
			kubectl(n.t, "delete", "pod", name, "--grace-period=0", "--force")
		}
		if got != c.want {
			n.t.Errorf("%s has an oom_score_adj of %s, want %s", c.name, got, c.want)
		}
	}
}

// TestNodeNRI checks that a real container runtime places containers on the requested CPUs before their first
// instruction, leaves them there when it updates them, and reconnects after a restart. The agent must be connected, and
// must set the OOM scores of containers.
func TestNodeNRI(t *testing.T) {
	oneNode(t, "the runtime is the same on both")
	n := install(t)
	if g, isGuest := n.machine.(guest); isGuest {
		// A plugin on this machine cannot reach that runtime.
		eventually(t, "the runtime in the virtual machine has the agent as a plugin", func() (bool, string) {
			out, err := g.run("journalctl", "-u", "containerd", "--no-pager")
			return err == nil && strings.Contains(out, `90-waterline\" connected and synchronized`), out
		})
		n.testOOMScore()
		return
	}
	n.testOOMScore()
	p := newPlacer(t)
	p.put("nri-first", "1")
	if cpus := n.firstAct("nri-first"); cpus != "1" {
		t.Errorf("placed on CPU 1, the first instruction of a container ran on %s", cpus)
	}
	if cpus := n.firstAct("nri-free"); cpus == "1" {
		t.Errorf("without a placement, the first instruction of a container ran on %s", cpus)
	}
	p.put("nri-nonsense", "1000")
	if cpus := n.firstAct("nri-nonsense"); cpus == "1" || cpus == "1000" {
		t.Errorf("placed on a CPU that does not exist, the first instruction of a container ran on %s", cpus)
	}

	// Allocate, move and resize, like an agent.
	p.put("nri-moved", "1")
	n.run("nri-moved", "", "requests: {cpu: 100m}, limits: {cpu: 200m}", false)
	dir, id := n.container("nri-moved")
	if cpus := n.cpus(dir); cpus.String() != "1" {
		t.Errorf("placed on CPU 1, a container has %s", cpus)
	}
	if c, ok := p.saw(id); !ok || c.Dir != dir || c.Name != "c" || c.Namespace != "default" ||
		!strings.Contains(dir, c.PodUID) {
		t.Errorf("the runtime sent %+v, want a container in %s", c, dir)
	}
	resize := func(cpu string, quota int64) {
		t.Helper()
		kubectl(t, "patch", "pod", "nri-moved", "--subresource", "resize", "--patch",
			fmt.Sprintf(`{"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": %q}}}]}}`, cpu))
		n.expect(t, dir, model.Quota, quota)
		time.Sleep(time.Second) // runc writes one file after the other
	}
	p.put("nri-moved", "0")
	n.setCPUs(dir, "0")
	resize("300m", 30_000)
	if cpus := n.cpus(dir); cpus.String() != "0" {
		t.Errorf("a resize put a container that had been moved to CPU 0 on %s", cpus)
	}

	// The counter-check without answers: the runtime writes its own values.
	p.put("nri-moved", "")
	n.setCPUs(dir, "1")
	resize("400m", 40_000)
	eventually(t, "without an answer, the runtime writes its own values; otherwise UpdateContainer needs no answer",
		func() (bool, string) {
			cpus := n.cpus(dir)
			return cpus.String() == "0", cpus.String()
		})

	p.mu.Lock()
	clear(p.seen)
	p.mu.Unlock()
	before := p.Stats().Connections
	n.mustRestart("containerd")
	eventually(t, "the runtime is back", func() (bool, string) {
		s := p.Stats()
		return s.Connected && s.Connections > before, fmt.Sprintf("%+v", s)
	})
	eventually(t, "after its restart, the runtime reports "+dir, func() (bool, string) { // once it is connected
		c, ok := p.saw(id)
		return ok && c.Dir == dir, fmt.Sprintf("%+v", c)
	})
	p.put("nri-again", "1")
	if cpus := n.firstAct("nri-again"); cpus != "1" {
		t.Errorf("after the runtime's restart, the first instruction of a container placed on CPU 1 ran on %s", cpus)
	}

	agent := n.agent()
	eventually(t, "the agent is connected and gets requests", func() (bool, string) {
		out, err := tryKubectl("get", "--raw", "/api/v1/namespaces/waterline-system/pods/"+agent.Name+":9464/proxy/metrics")
		return err == nil && strings.Contains(out, "waterline_nri_connected 1") &&
			!strings.Contains(out, "waterline_nri_requests_total 0\n"), out
	})
}
