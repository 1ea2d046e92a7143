//go:build bench

package journal

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkAppend appends rounds of a [busy] node. An agent that appends one round a second needs so many µs of CPU
// each second: 1,000 of them are 1 mCPU. It also reports how long such a journal of 8 MiB is.
func BenchmarkAppend(b *testing.B) {
	dir := b.TempDir()
	j, err := Open(dir, 8<<20)
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	rounds := busy(200)
	b.ReportAllocs()
	began := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		if err := j.Append(rounds[i%len(rounds)]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N), "cpu-µs/round")
	size, lines := held(b, dir)
	b.ReportMetric(float64(size)/float64(lines), "B/round")
	b.ReportMetric(float64(lines)*float64(8<<20)/float64(max(size, 1)), "rounds/8MiB")
}

// cpuTime returns the CPU time of this process, which a busy machine does not stretch.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
