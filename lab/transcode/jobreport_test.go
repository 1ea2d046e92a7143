package transcode

import (
	"testing"
	"time"
)

// Reports by the shells of Debian and busybox.
const (
	dashReport    = "hundredths 1234\nframes 125\n0m0.010000s 0m0.020000s\n0m12.500000s 0m0.070000s\n"
	busyboxReport = "hundredths 1234\nframes 125\n0m0.010s 0m0.020s\n1m2.500s 0m0.070s\n"
)

func TestParseReport(t *testing.T) {
	for text, cpu := range map[string]time.Duration{
		dashReport: 12600 * time.Millisecond, busyboxReport: 62600 * time.Millisecond,
	} {
		got, err := parseReport(text)
		want := jobReport{took: 12340 * time.Millisecond, frames: 125, cpu: cpu}
		if err != nil || got != want {
			t.Errorf("%+v, %v, not %+v", got, err, want)
		}
	}
	for _, bad := range []string{
		"", "\n\n\n\n", dashReport + "more\n",
		"frames 125\nhundredths 1234\n0m0s 0m0s\n0m0s 0m0s", "hundredths -1\nframes 125\n0m0s 0m0s\n0m0s 0m0s",
		"hundredths 0\nframes 125\n0m0s 0m0s\n0m0s 0m0s", "hundredths 1\nframes \n0m0s 0m0s\n0m0s 0m0s",
		"hundredths 1\nframes 1\n0m0s\n0m0s 0m0s",
		"hundredths 1\nframes 1\n0m0s 0m0s\n0m0s -1s",
	} {
		if _, err := parseReport(bad); err == nil {
			t.Errorf("no error for %q", bad)
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
