package vm

import (
	"fmt"
	"time"
)

// rdtsc returns this CPU's time-stamp counter.
func rdtsc() int64

// ClockArgs returns kernel arguments that make a guest use the time-stamp counter as its clock, which an emulated CPU
// has from the host. Left to itself the kernel (6.1) takes the HPET: it thinks that the counters of an AMD CPU without
// the feature constant_tsc differ. Each look at that clock goes through qemu's one lock, which made a guest many times
// slower and, on a busy host, stand still for good. The kernel must be told the rate too: on a busy host it was seen to
// measure 167 MHz and 2.1 GHz for 2.6.
func ClockArgs() []string {
	c0, t0 := readBoth()
	time.Sleep(100 * time.Millisecond)
	c1, t1 := readBoth()
	return []string{
		"tsc=reliable", "clocksource=tsc", fmt.Sprintf("tsc_early_khz=%d", (c1-c0)*int64(time.Millisecond)/int64(t1.Sub(t0))),
	}
}

// readBoth reads the counter and the clock at the same moment, as nearly as ten tries allow.
func readBoth() (counter int64, at time.Time) {
	best := time.Hour
	for range 10 {
		before := time.Now()
		c := rdtsc()
		after := time.Now()
		if took := after.Sub(before); took < best {
			best, counter, at = took, c, before.Add(took/2)
		}
	}
	return counter, at
}
