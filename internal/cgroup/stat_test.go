package cgroup_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// As 6.18 (v1) and 6.12 (v2) write them.
const (
	cpuStatV1 = "nr_periods 99\nnr_throttled 88\nthrottled_time 6600114000\nnr_bursts 0\nburst_time 0\n"
	cpuStatV2 = "usage_usec 81277321\nuser_usec 60012345\nsystem_usec 21264976\nnice_usec " +
		"0\ncore_sched.force_idle_usec 0\n" +
		"nr_periods 4711\nnr_throttled 42\nthrottled_usec 1234567\nnr_bursts 0\nburst_usec 0\n"
	memoryStatV1 = `cache 11157504
rss 7319552
rss_huge 0
shmem 9068544
mapped_file 7618560
dirty 16384
writeback 0
workingset_refault_anon 0
workingset_refault_file 52705
swap 0
swapcached 0
pgpgin 192874
pgpgout 188363
pgfault 209983
pgmajfault 0
inactive_anon 0
active_anon 1531904
inactive_file 319488
active_file 1769472
unevictable 14856192
hierarchical_memory_limit 9223372036854771712
hierarchical_memsw_limit 9223372036854771712
total_cache 1286823936
total_rss 12505088
total_rss_huge 0
total_shmem 9068544
total_mapped_file 11001856
total_dirty 159744
total_writeback 0
total_workingset_refault_anon 0
total_workingset_refault_file 20970660
total_swap 0
total_swapcached 0
total_pgpgin 401698770
total_pgpgout 401468034
total_pgfault 451735979
total_pgmajfault 165528
total_inactive_anon 5005312
total_active_anon 1568768
total_inactive_file 473423872
total_active_file 804331520
total_unevictable 14856192
`
	memoryStatV2 = `anon 70131712
file 67112960
kernel 1511424
kernel_stack 98304
pagetables 303104
sec_pagetables 0
percpu 1152
sock 0
vmalloc 0
shmem 0
zswap 0
zswapped 0
file_mapped 1331200
file_dirty 67108864
file_writeback 0
swapcached 0
anon_thp 62914560
file_thp 0
shmem_thp 0
inactive_anon 70107136
active_anon 16384
inactive_file 67108864
active_file 4096
unevictable 0
slab_reclaimable 781216
slab_unreclaimable 241960
slab 1023176
workingset_refault_anon 0
workingset_refault_file 0
pgscan 0
pgsteal 0
pgfault 18211
pgmajfault 3
`
	pressure = "some avg10=0.04 avg60=0.58 avg300=13.46 total=11835396583\nfull avg10=0.00 avg60=0.01 avg300=0.04 " +
		"total=75245656\n"
	pressureOld = "some avg10=0.00 avg60=0.01 avg300=0.07 total=158166299\n" // of the CPU, before 5.13
)

func TestParseCPUStat(t *testing.T) {
	for _, c := range []struct {
		v    cgroup.Version
		text string
		want cgroup.CPUStat
		bad  bool
	}{
		{cgroup.V1, cpuStatV1, cgroup.CPUStat{Periods: 99, Throttled: 88}, false},
		{cgroup.V2, cpuStatV2, cgroup.CPUStat{Nanos: 81277321000, Periods: 4711, Throttled: 42}, false},
		// without the controller
		{cgroup.V2, "usage_usec 1\nuser_usec 1\nsystem_usec 0\n", cgroup.CPUStat{Nanos: 1000}, false},
		{cgroup.V1, "", cgroup.CPUStat{}, false},
		{cgroup.V2, "", cgroup.CPUStat{}, true},
		{cgroup.V2, cpuStatV1, cgroup.CPUStat{}, true},
		{cgroup.V2, "usage_usec -1\n", cgroup.CPUStat{}, true},
		{cgroup.V2, "usage_usec 18446744073709552\n", cgroup.CPUStat{}, true}, // more nanoseconds than fit
		{cgroup.V2, "usage_usec\nnr_periods 0\n", cgroup.CPUStat{}, true},
		{cgroup.V1, "nr_periods x\nnr_throttled 1\n", cgroup.CPUStat{}, true},
	} {
		got, err := cgroup.ParseCPUStat(c.v, []byte(c.text))
		if got != c.want || c.bad != errors.Is(err, cgroup.ErrMalformed) || c.bad != (err != nil) {
			t.Errorf("%s %q: %+v, %v", c.v, c.text, got, err)
		}
	}
}

// TestParseCount reads CPU time beyond 2^63 ns, which 256 busy CPUs reach within 14 months.
func TestParseCount(t *testing.T) {
	for text, want := range map[string]uint64{
		"35033769169201\n": 35033769169201, "0\n": 0, "9223372036854775808\n": 1 << 63,
		"18446744073709551615\n": math.MaxUint64,
	} {
		if got, err := cgroup.ParseCount([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "\n", "-1\n", "max\n", "1 2\n", "18446744073709551616\n", "99999999999999999999\n", "100000000000000000000\n",
	} {
		if got, err := cgroup.ParseCount([]byte(text)); !errors.Is(err, cgroup.ErrMalformed) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestParseMemoryStat(t *testing.T) {
	for _, c := range []struct {
		v    cgroup.Version
		text string
		want cgroup.MemoryStat
		bad  bool
	}{
		{cgroup.V1, memoryStatV1, cgroup.MemoryStat{Anon: 12505088, ActiveFile: 804331520, InactiveFile: 473423872}, false},
		{cgroup.V2, memoryStatV2, cgroup.MemoryStat{Anon: 70131712, ActiveFile: 4096, InactiveFile: 67108864, Slab: 781216}, false},
		{cgroup.V1, memoryStatV2, cgroup.MemoryStat{}, true},
		{cgroup.V2, "anon 1\nactive_file 2\n", cgroup.MemoryStat{}, true},
		{cgroup.V2, "anon 1\nactive_file 2\ninactive_file -3\n", cgroup.MemoryStat{}, true},
		{cgroup.V2, "", cgroup.MemoryStat{}, true},
	} {
		got, err := cgroup.ParseMemoryStat(c.v, []byte(c.text))
		if got != c.want || c.bad != errors.Is(err, cgroup.ErrMalformed) || c.bad != (err != nil) {
			t.Errorf("%s %.40q: %+v, %v", c.v, c.text, got, err)
		}
	}
}

func TestParsePressure(t *testing.T) {
	for _, c := range []struct {
		text string
		want cgroup.Stalled
		bad  bool
	}{
		{pressure, cgroup.Stalled{Some: 11835396583 * time.Microsecond, Full: 75245656 * time.Microsecond}, false},
		{pressureOld, cgroup.Stalled{Some: 158166299 * time.Microsecond}, false},
		{"", cgroup.Stalled{}, true},
		{"full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n", cgroup.Stalled{}, true},
		{"some avg10=0.00 avg60=0.00 avg300=0.00 total=-1\n", cgroup.Stalled{}, true},
		{"some avg10=0.00\n", cgroup.Stalled{}, true},
		{"some avg10=0.00 avg60=0.00 avg300=0.00 total=999999999999999999\n", cgroup.Stalled{}, true},
	} {
		got, err := cgroup.ParsePressure([]byte(c.text))
		if got != c.want || c.bad != errors.Is(err, cgroup.ErrMalformed) || c.bad != (err != nil) {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
	}
}

func FuzzParseStats(f *testing.F) {
	for _, seed := range []string{
		cpuStatV1, cpuStatV2, memoryStatV1, memoryStatV2, pressure, pressureOld, "35033769169201\n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var errs []error
		for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			_, err := cgroup.ParseCPUStat(v, content)
			errs = append(errs, err)
			m, err := cgroup.ParseMemoryStat(v, content)
			errs = append(errs, err)
			if m.Anon < 0 || m.ActiveFile < 0 || m.InactiveFile < 0 {
				t.Errorf("%q: %+v", content, m)
			}
		}
		_, err := cgroup.ParseCount(content)
		errs = append(errs, err)
		p, err := cgroup.ParsePressure(content)
		errs = append(errs, err)
		if p.Some < 0 || p.Full < 0 {
			t.Errorf("%q: %+v", content, p)
		}
		for _, err := range errs {
			if err != nil && !errors.Is(err, cgroup.ErrMalformed) {
				t.Errorf("%q: %v", content, err)
			}
		}
	})
}

func TestParseStatsAllocations(t *testing.T) {
	cpu, v1, v2, psi := []byte(cpuStatV2), []byte(memoryStatV1), []byte(memoryStatV2), []byte(pressure)
	allocs := testing.AllocsPerRun(100, func() {
		_, err1 := cgroup.ParseCPUStat(cgroup.V2, cpu)
		_, err2 := cgroup.ParseMemoryStat(cgroup.V1, v1)
		_, err3 := cgroup.ParseMemoryStat(cgroup.V2, v2)
		_, err4 := cgroup.ParsePressure(psi)
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
			t.Error(err1, err2, err3, err4)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
