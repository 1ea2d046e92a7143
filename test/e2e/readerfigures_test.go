//go:build bench

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// reader repeatedly reads the CPU usage of groups and of the machine. The agent's figures are compared with it. It
// shares no code with the agent.
type reader struct {
	version cgroup.Version
	files   []string // of the groups, and last of the machine
	cpus    float64
	at      []time.Time
	// In seconds: the CPU time of each group, then the machine's idle and stolen time.
	used [][]float64
}

func newReader(g groups, dirs []string) *reader {
	r := &reader{version: g.Version}
	for _, dir := range dirs {
		r.files = append(r.files, filepath.Join(g.OfStat(cgroup.CPUUsage), dir, cgroup.StatFile(g.Version, cgroup.CPUUsage)))
	}
	r.files = append(r.files, "/proc/stat")
	return r
}

// read reads files of this machine for some time, ten times a second.
func (r *reader) read(t *testing.T, length time.Duration) {
	t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		at := time.Now()
		var texts []string
		for _, file := range r.files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(content))
		}
		if err := r.take(at, texts); err != nil {
			t.Fatal(err)
		}
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	r.cpus = float64(strings.Count(string(stat), "\ncpu"))
}

// take records the contents of the files at a time. Their first lines are enough.
func (r *reader) take(at time.Time, texts []string) error {
	var row []float64
	take := func(i int, unit float64, which ...int) error {
		words := strings.Fields(texts[i])
		var sum float64
		for _, j := range which {
			if j >= len(words) {
				return fmt.Errorf("%s reads %q", r.files[i], texts[i])
			}
			v, err := strconv.ParseFloat(words[j], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", r.files[i], err)
			}
			sum += v * unit
		}
		row = append(row, sum)
		return nil
	}
	for i := range texts {
		err := error(nil)
		switch {
		case r.files[i] == "/proc/stat": // cpu user nice system idle iowait irq softirq steal
			err = errors.Join(take(i, 0.01, 4, 5, 8), take(i, 0.01, 8))
		case r.version == cgroup.V2: // usage_usec N
			err = take(i, 1e-6, 1)
		default:
			err = take(i, 1e-9, 0)
		}
		if err != nil {
			return err
		}
	}
	r.at, r.used = append(r.at, at), append(r.used, row)
	return nil
}

// count returns a counter at a time, interpolated between two readings.
func (r *reader) count(count int, at time.Time) float64 {
	i := sort.Search(len(r.at), func(i int) bool { return r.at[i].After(at) })
	i = min(max(i, 1), len(r.at)-1)
	part := at.Sub(r.at[i-1]).Seconds() / r.at[i].Sub(r.at[i-1]).Seconds()
	return r.used[i-1][count] + min(max(part, 0), 1)*(r.used[i][count]-r.used[i-1][count])
}

// grown returns the growth of a counter between two times.
func (r *reader) grown(count int, from, to time.Time) float64 {
	return r.count(count, to) - r.count(count, from)
}

// cores returns the CPUs that some groups used between two times.
func (r *reader) cores(from, to time.Time, groups ...int) float64 {
	var sum float64
	for _, g := range groups {
		sum += r.grown(g, from, to)
	}
	return sum / to.Sub(from).Seconds()
}

// of returns the function of times that cores is for some groups.
func (r *reader) of(groups ...int) func(from, to time.Time) float64 {
	return func(from, to time.Time) float64 { return r.cores(from, to, groups...) }
}

// node returns the CPUs that the machine used between two times.
func (r *reader) node(from, to time.Time) float64 {
	return r.cpus - r.cores(from, to, len(r.files)-1)
}

// system returns the CPUs that the machine used outside of a group, at least 0: the kernel may count stolen time as
// used by the group, and not by the machine.
func (r *reader) system(from, to time.Time, pods int) float64 {
	return max(r.node(from, to)-r.cores(from, to, pods), 0)
}

// stolen returns the CPUs that the hypervisor gave to other machines.
func (r *reader) stolen(from, to time.Time) float64 {
	return r.cores(from, to, len(r.files))
}

// available returns the CPUs that batch pods could have used: in each second, those below the ceiling that were neither
// used by others nor stolen. Usage outside of pods is known less exactly, but it is at least 0.
func (r *reader) available(ceiling float64, from, to time.Time, pods int, batch ...int) float64 {
	var sum float64
	n := 0
	for ; !from.Add(time.Second).After(to); from = from.Add(time.Second) {
		end := from.Add(time.Second)
		all := r.cores(from, end, pods)
		outside := max(r.node(from, end)+r.stolen(from, end)-all, 0)
		sum += max(ceiling-outside-all+r.cores(from, end, batch...), 0)
		n++
	}
	return sum / float64(n)
}

// bounds returns the minimum and the maximum of a figure over a span that ends up to a second before a time. It is
// unknown when in that second the agent measured.
func bounds(span time.Duration, end time.Time, of func(from, to time.Time) float64) (least, most float64) {
	var all []float64
	for phase := time.Duration(0); phase <= time.Second; phase += 50 * time.Millisecond {
		to := end.Add(-phase)
		all = append(all, of(to.Add(-span), to))
	}
	return slices.Min(all), slices.Max(all)
}

// workingSet returns the memory of a group as the kubelet counts it.
func (g groups) workingSet(t *testing.T, dir string) float64 {
	t.Helper()
	read := func(s cgroup.Stat) string {
		content, err := g.readFile(filepath.Join(g.OfStat(s), dir, cgroup.StatFile(g.Version, s)))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		return v
	}
	cold := "\ninactive_file "
	if g.Version == cgroup.V1 {
		cold = "\ntotal_inactive_file "
	}
	_, inactive, _ := strings.Cut("\n"+read(cgroup.MemoryDetails), cold)
	inactive, _, _ = strings.Cut(inactive, "\n")
	return number(read(cgroup.MemoryUsage)) - number(inactive)
}
