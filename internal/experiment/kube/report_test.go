package kube

import (
	"testing"
	"time"
)

// What the shells of Debian and busybox write.
const (
	dashReport    = "hundredths 1234\nframes 125\n0m0.010000s 0m0.020000s\n0m12.500000s 0m0.070000s\n"
	busyboxReport = "hundredths 1234\nframes 125\n0m0.010s 0m0.020s\n1m2.500s 0m0.070s\n"
)

func TestParseReport(t *testing.T) {
	for text, cpu := range map[string]time.Duration{dashReport: 12600 * time.Millisecond, busyboxReport: 62600 * time.Millisecond} {
		got, err := parseReport(text)
		if want := (report{took: 12340 * time.Millisecond, frames: 125, cpu: cpu}); err != nil || got != want {
			t.Errorf("%+v, %v, not %+v", got, err, want)
		}
	}
	for _, bad := range []string{
		"", "\n\n\n\n", "frames 125\nhundredths 1234\n0m0s 0m0s\n0m0s 0m0s", "hundredths -1\nframes 125\n0m0s 0m0s\n0m0s 0m0s",
		"hundredths 0\nframes 125\n0m0s 0m0s\n0m0s 0m0s", "hundredths 1\nframes \n0m0s 0m0s\n0m0s 0m0s", "hundredths 1\nframes 1\n0m0s\n0m0s 0m0s",
		"hundredths 1\nframes 1\n0m0s 0m0s\n0m0s -1s", dashReport + "more\n",
	} {
		if _, err := parseReport(bad); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add(dashReport)
	f.Add(busyboxReport)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parseReport(text); err == nil && (r.took <= 0 || r.frames <= 0) {
			t.Errorf("%q: %+v", text, r)
		}
	})
}
