//go:build bench

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// cpuCrowd is a crowd with one more pod, which can have an exclusive CPU.
type cpuCrowd struct {
	*crowd
	all    model.CPUSet
	asker  string    // its cgroup
	own    [2]string // cgroups of its containers: the one with the CPU, and another
	others []string  // cgroups of containers of some other pods
	paused time.Duration
}

const askerName = "asker"

// TestAPICPUFigures measures the cost and the speed of CPU sets on a full node, like TestAPIFigures for weights.
func TestAPICPUFigures(t *testing.T) {
	idle, pins, switches, pause := 10*time.Second, 100, 21, time.Duration(0)
	if benchFile != "" {
		idle, pins, switches, pause = 2*time.Minute, 1000, 201, time.Minute/28 // the agent allows 30 moves a minute
	}
	topology, err := host.ReadTopology(host.DefaultSys)
	if err != nil {
		t.Fatal(err)
	}
	c := &cpuCrowd{crowd: newCrowd(t), all: topology.Online(), paused: pause}
	if c.Cpusets == "" || c.all.Len() < 2 {
		t.Skip("no cpuset controller, or one CPU only")
	}
	c.most = map[string]float64{"cpu_millicores_110_more": 10, "rss_mib_110": 40, "switch_p99_ms": 2000, "pin_p99_ms": 500}
	metrics := map[string]float64{"pins": float64(pins), "switches": float64(switches), "idle_seconds": idle.Seconds()}
	if benchFile != "" {
		metrics["allocate_us_512cpu_200pods"] = allocate(t)
	}

	c.fill(109)
	c.choose()
	pid := c.agent("--kubelet", kubelet(t))
	c.converge()
	c.cost(pid, idle, "110_unused", metrics)
	c.until(c.placed(model.CPUNone)) // all pods may use all CPUs

	c.annotate(askerName, v1alpha1.AnnotationCPUManager, string(model.CPUExclusive))
	c.until(c.placed(model.CPUExclusive))
	time.Sleep(3 * time.Second)
	c.cost(pid, idle, "110", metrics)
	metrics["cpu_millicores_110_more"] = metrics["cpu_millicores_110"] - metrics["cpu_millicores_110_unused"]

	c.pin(pins, metrics)
	c.switches(switches, metrics)
	c.judge("cpuset", metrics, c.most)
}

// kubelet serves the agent's queries of a kubelet, and returns its address.
func kubelet(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"kubeletconfig": {"cpuManagerPolicy": "none"}}`))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/configz"
}

// choose makes the pod that can have an exclusive CPU, and chooses the other pods to watch.
func (c *cpuCrowd) choose() {
	c.t.Helper()
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	// With a weight of its own, it does not bound those of the others.
	c.asker, _ = c.create(askerName, weigh(4096), corev1.ResourceRequirements{Requests: cpu, Limits: cpu})
	c.own = c.run(c.asker)
	var statuses []string
	for i, name := range []string{"a", "b"} {
		statuses = append(statuses,
			fmt.Sprintf(`{"name":%q,"image":"none","imageID":"","ready":true,"restartCount":0,"containerID":"containerd://%s"}`,
				name, filepath.Base(c.own[i])))
	}
	c.patch(askerName, "status", fmt.Sprintf(`{"status":{"containerStatuses":[%s]}}`, strings.Join(statuses, ",")))
	for i, j := range c.rand.Perm(len(c.pods))[:18] {
		c.others = append(c.others, c.containers[j][i%2])
	}
}

// placed is the sight of twenty containers on their right CPUs while the pod has a mode.
func (c *cpuCrowd) placed(mode model.CPUMode) sight {
	s := sight{what: "CPUs while the asker's mode is " + string(mode)}
	for _, dir := range append(c.own[:], c.others...) {
		s.files = append(s.files, c.path(dir, model.Cpuset))
	}
	s.seen = func(texts []string) bool {
		own, err := model.ParseCPUs(texts[0])
		if err != nil || mode == model.CPUNone && own != c.all || mode != model.CPUNone && own.Len() != 1 {
			return false
		}
		rest := c.all
		if mode == model.CPUExclusive {
			rest = c.all.Minus(own)
		}
		for _, text := range texts[1:] {
			if strings.TrimSpace(text) != rest.String() {
				return false
			}
		}
		return true
	}
	return s
}

// switches measures the time from the API server's answer to a changed annotation until all of twenty containers run on
// their right CPUs.
func (c *cpuCrowd) switches(n int, metrics map[string]float64) {
	c.t.Helper()
	modes := []model.CPUMode{model.CPUShare, model.CPUNone, model.CPUExclusive}
	c.measure("switch_", n, metrics, func(i int) sight {
		time.Sleep(c.paused)
		mode := modes[i%len(modes)]
		c.annotate(askerName, v1alpha1.AnnotationCPUManager, string(mode))
		return c.placed(mode)
	})
}

// pin measures the time from the creation of a container's cgroup until the container is limited to its CPUs. The
// cgroup is made alternately in the pod with an exclusive CPU and in pods without. The API server does not know the
// container yet.
func (c *cpuCrowd) pin(n int, metrics map[string]float64) {
	c.t.Helper()
	mine, err := c.readFile(c.path(c.own[0], model.Cpuset))
	if err != nil {
		c.t.Fatal(err)
	}
	own, err := model.ParseCPUs(string(mine))
	if err != nil {
		c.t.Fatal(err)
	}
	last := ""
	c.measure("pin_", n, metrics, func(i int) sight {
		if last != "" {
			if err := c.rmdir(last); err != nil {
				c.t.Fatal(err)
			}
			time.Sleep(15 * time.Millisecond) // the agent has read it
		}
		dir, want := c.asker, own
		if i%2 == 0 {
			dir, want = c.pods[c.rand.IntN(len(c.pods))], c.all.Minus(own)
		}
		last = c.container(dir)
		return sight{
			what: last + " on " + want.String(), files: []string{c.path(last, model.Cpuset)},
			seen: func(texts []string) bool { return strings.TrimSpace(texts[0]) == want.String() },
		}
	})
}

// allocate returns the microseconds of the slowest benchmark of an allocation on 512 CPUs.
func allocate(t *testing.T) float64 {
	t.Helper()
	out, err := exec.Command("go", "test", "-run", "^$", "-bench", "512$",
		"github.com/waterline-io/waterline/internal/decide/node/cpuset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var most float64
	for _, match := range regexp.MustCompile(`(?m)^Benchmark.*\s([\d.]+) ns/op`).FindAllSubmatch(out, -1) {
		ns, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, ns/1000)
	}
	if most == 0 {
		t.Fatalf("no benchmark: %s", out)
	}
	return most
}
