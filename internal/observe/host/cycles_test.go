package host

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
)

// recorded are counters with recorded contents.
type recorded struct {
	refuses error // by which open fails, after some opens
	after   int
	absent  bool // the directory is gone
	next    int
	opened  map[int]string // fd → what was opened
	content map[int][]byte // CPU → content of its group
	cpu     map[int]int    // leader → CPU
}

func newRecorded() *recorded {
	return &recorded{opened: map[int]string{}, content: map[int][]byte{}, cpu: map[int]int{}}
}

func (r *recorded) fd(what string) int {
	r.next++
	r.opened[r.next] = what
	return r.next
}

func (r *recorded) dir(path string) (int, error) {
	if r.absent {
		return -1, unix.ENOENT
	}
	return r.fd(path), nil
}

func (r *recorded) open(event uint64, cgroup, cpu, leader int) (int, error) {
	if r.after--; r.refuses != nil && r.after < 0 {
		return -1, r.refuses
	}
	if r.opened[cgroup] == "" {
		return -1, unix.EBADF
	}
	if leader >= 0 {
		if event != unix.PERF_COUNT_HW_INSTRUCTIONS || r.cpu[leader] != cpu {
			return -1, unix.EINVAL
		}
		return r.fd("instructions"), nil
	}
	fd := r.fd("cycles")
	r.cpu[fd] = cpu
	return fd, nil
}

func (r *recorded) read(fd int, buf []byte) (int, error) {
	if r.opened[fd] != "cycles" {
		return 0, unix.EBADF
	}
	return copy(buf, r.content[r.cpu[fd]]), nil
}

func (r *recorded) close(fd int) { delete(r.opened, fd) }

// holds sets what the counters of a CPU hold.
func (r *recorded) holds(cpu int, enabled, running, cycles, instructions uint64) {
	var b []byte
	for _, n := range []uint64{2, enabled, running, cycles, instructions} {
		b = binary.NativeEndian.AppendUint64(b, n)
	}
	r.content[cpu] = b
}

// newCycles returns a counter of one pod, web, on two CPUs.
func newCycles(r *recorded) (c *Cycles, sample func() error, now *time.Duration) {
	now = new(time.Duration)
	c = NewCycles(Mount{Perf: "/perf"})
	c.calls, c.clock = r, func(int32) time.Duration { return *now }
	groups := map[string]model.PodGroup{"web": {Dir: "kubepods/podweb"}}
	return c, func() error {
		*now += time.Second
		return c.Sample([]string{"web"}, groups, model.CPUs(0, 3))
	}, now
}

// TestCycles counts a pod on two CPUs, on one of which other counters take turns with these.
func TestCycles(t *testing.T) {
	r := newRecorded()
	r.holds(0, 0, 0, 0, 0)
	r.holds(3, 0, 0, 0, 0)
	c, sample, _ := newCycles(r)
	want := model.PodCycles{UID: "web", At: time.Second}
	check := func(what string) {
		t.Helper()
		if err := sample(); err != nil {
			t.Fatal(err)
		}
		if got := c.Append(nil); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		want.At += time.Second
	}
	check("counters begin at zero")
	r.holds(0, 500e6, 500e6, 1500e6, 1000e6)
	r.holds(3, 400e6, 100e6, 200e6, 100e6) // a quarter of the time
	want.Cycles, want.Instructions = 1500e6+4*200e6, 1000e6+4*100e6
	check("a second")
	r.holds(3, 500e6, 100e6, 200e6, 100e6) // others had the counters for the whole second
	check("counters that stop")
	r.holds(3, 600e6, 200e6, 500e6, 200e6)
	want.Cycles, want.Instructions = want.Cycles+2*300e6/2, want.Instructions+100e6
	check("they go on")
	r.holds(0, 100, 100, 100, 100)
	check("they went backwards")
	if len(r.opened) != 4 {
		t.Errorf("open are %v", r.opened)
	}
	if err := c.Sample(nil, nil, model.CPUs(0, 3)); err != nil || len(r.opened) != 0 {
		t.Errorf("no pod is counted: %v, open are %v", err, r.opened)
	}
}

// TestCyclesHotplug checks that counters are opened anew when CPUs go on- or offline, and that the sums go on.
func TestCyclesHotplug(t *testing.T) {
	r := newRecorded()
	r.holds(0, 10, 10, 100, 10)
	r.holds(3, 10, 10, 100, 10)
	c, sample, _ := newCycles(r)
	if err := sample(); err != nil {
		t.Fatal(err)
	}
	groups := map[string]model.PodGroup{"web": {Dir: "kubepods/podweb"}}
	if err := c.Sample([]string{"web"}, groups, model.CPUs(0)); err != nil {
		t.Fatal(err)
	}
	if got := c.Append(nil)[0]; len(r.opened) != 2 || got.Cycles != 300 {
		t.Errorf("%+v, open are %v", got, r.opened)
	}
	c.Close()
	if len(r.opened) != 0 {
		t.Errorf("open are %v", r.opened)
	}
}

// TestNoCycles checks which errors mean that the node counts nothing, that this is returned once, and that no file
// stays open.
func TestNoCycles(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOENT, unix.EACCES, unix.EPERM, unix.EOPNOTSUPP, unix.EMFILE, unix.ENOSYS} {
		for after := range 4 {
			r := newRecorded()
			r.refuses, r.after = errno, after
			_, sample, _ := newCycles(r)
			if err := sample(); !errors.Is(err, ErrNoCycles) || !errors.Is(err, errno) {
				t.Errorf("%s: %v", errno, err)
			}
			if err := sample(); err != nil {
				t.Errorf("%s is returned again: %v", errno, err)
			}
			if len(r.opened) != 0 {
				t.Errorf("%s: open are %v", errno, r.opened)
			}
		}
	}
	c := NewCycles(Mount{})
	err := c.Sample([]string{"web"}, map[string]model.PodGroup{"web": {}}, model.CPUs(0))
	if !errors.Is(err, ErrNoCycles) {
		t.Errorf("without a hierarchy: %v", err)
	}
}

// TestCyclesForAMoment checks errors that may go away: nothing is counted meanwhile.
func TestCyclesForAMoment(t *testing.T) {
	r := newRecorded()
	r.holds(0, 0, 0, 0, 0)
	r.holds(3, 0, 0, 0, 0)
	c, sample, _ := newCycles(r)
	r.absent = true
	if err := sample(); err != nil || c.Append(nil)[0].At != 0 {
		t.Errorf("the cgroup is gone: %v, %+v", err, c.Append(nil))
	}
	r.absent, r.refuses, r.after = false, unix.ENODEV, 1 // a CPU goes offline
	if err := sample(); err == nil || errors.Is(err, ErrNoCycles) || len(r.opened) != 0 {
		t.Errorf("%v, open are %v", err, r.opened)
	}
	r.refuses = nil
	if err := sample(); err != nil || c.Append(nil)[0].At == 0 {
		t.Errorf("%v, %+v", err, c.Append(nil))
	}
	r.content[3] = r.content[3][:8]
	if err := sample(); err == nil || len(r.opened) != 0 {
		t.Errorf("%v, open are %v", err, r.opened)
	}
}

// TestCycleCounts checks differences of random readings: never negative, and the ratio of the two counts is kept.
func TestCycleCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		a := CycleCounts{r.Uint64N(1 << 40), r.Uint64N(1 << 40), r.Uint64N(1 << 50), r.Uint64N(1 << 50)}
		b := CycleCounts{r.Uint64() >> r.IntN(64), r.Uint64() >> r.IntN(64), r.Uint64() >> r.IntN(64),
			r.Uint64() >> r.IntN(64)}
		cycles, instructions := b.Since(&a)
		if cycles < 0 || instructions < 0 {
			t.Fatalf("%+v since %+v: %d, %d", b, a, cycles, instructions)
		}
	}
}

// FuzzCycleCounts checks that any content gives an error or counts.
func FuzzCycleCounts(f *testing.F) {
	r := newRecorded()
	r.holds(0, 4, 3, 2, 1)
	f.Add(r.content[0])
	f.Add(r.content[0][:16])
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, err := ParseCycleCounts(content); err == nil && len(content) != countsSize {
			t.Errorf("%x is taken for counts", content)
		}
	})
}

// TestCyclesOfThisMachine counts a busy loop of this process on the real thing, with all processes of the machine.
func TestCyclesOfThisMachine(t *testing.T) {
	m, err := FindMount(DefaultRoot)
	if unified := filepath.Join(DefaultRoot, "unified"); m.Perf == "" && isType(unified, unix.CGROUP2_SUPER_MAGIC) {
		m.Perf = unified
	}
	if err != nil || m.Perf == "" || os.Geteuid() != 0 {
		t.Skipf("no cgroups of perf events, or not root: %+v, %v", m, err)
	}
	cpus, err := OnlineCPUs(DefaultSys)
	if err != nil {
		t.Skip(err)
	}
	c := NewCycles(m)
	defer c.Close()
	groups, busy := map[string]model.PodGroup{"all": {Dir: "."}}, 0
	for range 2 {
		switch err := c.Sample([]string{"all"}, groups, cpus); {
		case errors.Is(err, ErrNoCycles), errors.Is(err, fs.ErrNotExist):
			t.Skipf("in %s: %v", filepath.Join(m.Perf, "."), err)
		case err != nil:
			t.Fatal(err)
		}
		for i := range 50_000_000 {
			busy += i
		}
	}
	got := c.Append(nil)[0]
	t.Logf("a sum of %d", busy) // so that the compiler keeps the loop
	t.Logf("%+v", got)
	if got.Cycles == 0 || got.Instructions == 0 {
		t.Error("nothing was counted")
	}
}
