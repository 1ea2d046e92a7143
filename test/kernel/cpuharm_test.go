package kernel_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// TestCPUOnHarm pushes batch back on a machine whose cores have two threads, and checks on which CPUs the tasks run:
// batch on whole cores, and on the cores that it left no online task beside a batch task.
func TestCPUOnHarm(t *testing.T) {
	n := newSuppressNode(t)
	top, err := host.ReadTopology(host.DefaultSys)
	if err != nil {
		t.Fatal(err)
	}
	cores := map[int]model.CPUSet{} // CPU → the CPUs of its core
	for _, a := range top.CPUs {
		for _, b := range top.CPUs {
			if a.Core == b.Core {
				cores[a.ID] = cores[a.ID].Or(model.CPUs(b.ID))
			}
		}
	}
	if first := cores[top.CPUs[0].ID]; n.mount.Cpusets == "" || first.Len() < 2 || len(top.CPUs) < 2*first.Len() {
		t.Skipf("no CPU sets, or %d CPUs with %d threads a core", len(top.CPUs), first.Len())
	}
	n.proc = "" // waits are those of real tasks
	all := n.cpus()
	for range runtime.NumCPU() {
		n.load(n.job)
	}
	for range runtime.NumCPU() / 2 {
		n.load(n.web)
	}
	free := besides{cores: cores}
	for range 50 {
		free.look(n, all)
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("without an agent, batch has all CPUs: %s", &free)

	r := n.agentBy(model.SuppressOnHarm)
	n.until("it is known how long the online pod waits", func() bool {
		var harm *model.Harm
		_ = r.agent.View(t.Context(), func(v *agent.View) { harm = v.Plan.Harm })
		return harm != nil && harm.Known && harm.Signal == model.HarmByDelay
	})
	n.set(n.layout.Class(model.BestEffort), model.Shares, 40_000)
	limited := besides{cores: cores}
	sets := map[string]int{}
	before, same := all, 0
	// The kernel shows a new set before it has moved all tasks there, which takes long where CPUs stand still. So a
	// look counts only if the set was the same at many looks before.
	const moved = 25
	n.until("200 looks while batch has less", func() bool {
		time.Sleep(20 * time.Millisecond)
		set := n.cpus()
		seen := besides{cores: cores}
		seen.look(n, set)
		if set != before || n.cpus() != set {
			before, same = set, 0
		}
		if same++; set == all || same < moved {
			return false
		}
		sets[set.String()]++
		for cpu := range set.All() {
			if !cores[cpu].Within(set) {
				t.Fatalf("batch runs on CPUs %s, which have CPU %d but not all of its core %s", set, cpu, cores[cpu])
			}
		}
		if seen.stray > 0 {
			t.Fatalf("%d batch tasks run on other CPUs than %s", seen.stray, set)
		}
		limited.add(&seen)
		return limited.looks >= 200
	})
	t.Logf("batch has less, CPU sets %v: %s", sets, &limited)
	if limited.alone == 0 || limited.batch == 0 {
		t.Error("nothing was seen: no online task ran on a core that batch left, or no batch task ran")
	}
	if limited.beside > 0 {
		t.Errorf("%d times an online task ran beside a batch task on a core that batch left", limited.beside)
	}
}

// besides counts on which CPUs runnable tasks were.
type besides struct {
	cores  map[int]model.CPUSet
	looks  int
	batch  int // batch tasks
	stray  int // batch tasks outside of the CPUs of batch
	shared int // online tasks on cores of batch
	alone  int // online tasks on other cores
	beside int // of these, with a batch task on the same core
	within int // online tasks on cores of batch, with a batch task on the same core
}

func (b *besides) String() string {
	return fmt.Sprintf("%d looks; of %d online tasks on the cores of batch, %d beside batch; of %d on other cores, %d",
		b.looks, b.shared, b.within, b.alone, b.beside)
}

// add adds other looks.
func (b *besides) add(o *besides) {
	b.looks, b.batch, b.stray = b.looks+o.looks, b.batch+o.batch, b.stray+o.stray
	b.shared, b.alone = b.shared+o.shared, b.alone+o.alone
	b.beside, b.within = b.beside+o.beside, b.within+o.within
}

// look looks once on which CPUs the tasks of both pods are, while batch may run on a set.
func (b *besides) look(n *suppressNode, set model.CPUSet) {
	n.t.Helper()
	var taken model.CPUSet
	b.looks++
	for _, cpu := range n.processors(n.job) {
		b.batch++
		if !set.Has(cpu) {
			b.stray++
		}
		taken.Add(cpu)
	}
	for _, cpu := range n.processors(n.web) {
		crowded := !b.cores[cpu].And(taken).Empty()
		switch {
		case set.Has(cpu):
			b.shared++
			if crowded {
				b.within++
			}
		default:
			b.alone++
			if crowded {
				b.beside++
			}
		}
	}
}

// processors returns the CPU of each runnable task of a pod: where it runs, or waits to run.
func (n *suppressNode) processors(dir string) (cpus []int) {
	n.t.Helper()
	for _, pid := range strings.Fields(n.text(dir+"/0123456789aa", "cgroup.procs")) {
		stats, err := filepath.Glob(filepath.Join("/proc", pid, "task/*/stat"))
		if err != nil {
			n.t.Fatal(err)
		}
		for _, file := range stats {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			_, after, _ := strings.Cut(string(text), ") ")
			fields := strings.Fields(after)
			const state, processor = 0, 36 // the fields 3 and 39 of proc(5)
			if len(fields) <= processor || fields[state] != "R" {
				continue
			}
			cpu, err := strconv.Atoi(fields[processor])
			if err != nil {
				n.t.Fatalf("%s: %v", file, err)
			}
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
