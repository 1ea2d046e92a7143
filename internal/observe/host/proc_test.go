package host

import (
	"errors"
	"testing"
	"time"
)

// As 6.18 writes them.
const (
	procStat = `cpu  2975897 72697 409191 3790613 11037 0 5855 1918 0 0
cpu0 1478236 34463 197571 1917534 2333 0 1923 924 0 0
cpu1 1497660 38234 211619 1873079 8704 0 3932 993 0 0
intr 89862599 0 0 0 0 0 0 0 0 0 0 0
ctxt 231704021
btime 1795233181
processes 587788
procs_running 3
procs_blocked 0
softirq 15649573 0 1735221 2095 3786154 2612423 0 5971 3689952 2850 3814907
`
	procMeminfo = `MemTotal:       24684092 kB
MemFree:        22033084 kB
MemAvailable:   24166176 kB
Buffers:           70612 kB
Cached:          1209832 kB
SwapCached:            0 kB
Active:           794832 kB
Inactive:         483188 kB
Active(anon):       1528 kB
Inactive(anon):     4904 kB
Active(file):     793304 kB
Inactive(file):   478284 kB
Unevictable:       14564 kB
AnonPages:         12184 kB
Mapped:            10820 kB
`
	procZoneinfo = `Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 1258
  pages free     3840
        boost    0
        min      18
        low      22
        high     26
        promo    30
        protection: (0, 3019, 13771, 13771, 13771)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    0
              high:     0
              batch:    1
              high_min: 0
  vm stats threshold: 4
Node 0, zone   Normal
  pages free     5490813
        boost    0
        min      14000
        low      17500
        high     21000
`
)

func TestParseStat(t *testing.T) {
	got, err := ParseStat([]byte(procStat))
	if want := (ProcStat{
		Idle: (3790613 + 11037 + 1918) * 10 * time.Millisecond, Stolen: 1918 * 10 * time.Millisecond, CPUs: 2, Runnable: 3,
	}); got != want || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{
		"", "cpu  1 2 3 4 5 6 7 8 9 10\n", "cpu  1 2 3\ncpu0 1 2 3\nprocs_running 1\n",
		"cpu  1 2 3 -4 5 6 7 8\ncpu0 1\nprocs_running 1\n",
		"cpu  1 2 3 4 5 6 7 8\nprocs_running 1\n", "cpu  1 2 3 9223372036854775807 5 6 7 8\ncpu0 1\nprocs_running 1\n",
		"cpu  1 2 3 4 5 6 7 8\ncpu0 1\nprocs_running x\n",
	} {
		if got, err := ParseStat([]byte(text)); !errors.Is(err, ErrProc) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestParseMeminfo(t *testing.T) {
	got, err := ParseMeminfo([]byte(procMeminfo))
	if want := (Meminfo{
		Total: 24684092 << 10, Free: 22033084 << 10, Anon: 12184 << 10, ActiveFile: 793304 << 10, InactiveFile: 478284 << 10,
	}); got != want || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"", "MemTotal: 1 kB\n", "MemTotal: -1 kB\n", "MemTotal: 9223372036854775807 kB\n"} {
		if got, err := ParseMeminfo([]byte(text)); !errors.Is(err, ErrProc) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestSumLowWatermarks(t *testing.T) {
	if got, err := SumLowWatermarks([]byte(procZoneinfo)); got != 17522 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	for _, text := range []string{"   low x\n", "   low 9223372036854775807\n   low 1\n"} {
		if got, err := SumLowWatermarks([]byte(text)); !errors.Is(err, ErrProc) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func FuzzParseProc(f *testing.F) {
	for _, seed := range []string{procStat, procMeminfo, procZoneinfo, ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err1 := ParseStat(content)
		m, err2 := ParseMeminfo(content)
		low, err3 := SumLowWatermarks(content)
		if s.Idle < 0 || s.Stolen < 0 || s.Stolen > s.Idle || s.CPUs < 0 || s.Runnable < 0 ||
			min(m.Total, m.Free, m.Anon, m.ActiveFile, m.InactiveFile) < 0 || low < 0 {
			t.Errorf("%q: %+v, %+v, %d", content, s, m, low)
		}
		for _, err := range []error{err1, err2, err3} {
			if err != nil && !errors.Is(err, ErrProc) {
				t.Errorf("%q: %v", content, err)
			}
		}
	})
}
