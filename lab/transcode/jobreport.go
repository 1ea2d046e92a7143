package transcode

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// jobReport is what job.sh writes when its job is done.
type jobReport struct {
	took   time.Duration // from the common start
	frames int64
	cpu    time.Duration // of the shell and of ffmpeg
}

// parseReport reads a report. Anything but what job.sh writes is an error.
func parseReport(text string) (jobReport, error) {
	bad := func(why string) (jobReport, error) {
		return jobReport{}, fmt.Errorf("reading a job's report: %s in %.300q", why, text)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != 4 {
		return bad(fmt.Sprintf("%d lines", len(lines)))
	}
	var figures [2]int64
	for i, name := range []string{"hundredths", "frames"} {
		value, found := strings.CutPrefix(lines[i], name+" ")
		n, err := strconv.ParseUint(value, 10, 32)
		if !found || err != nil || n == 0 {
			return bad("no number of " + name)
		}
		figures[i] = int64(n)
	}
	r := jobReport{took: time.Duration(figures[0]) * 10 * time.Millisecond, frames: figures[1]}
	for _, line := range lines[2:] {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return bad("no pair of times")
		}
		for _, field := range fields {
			d, err := time.ParseDuration(field)
			if err != nil || d < 0 {
				return bad(fmt.Sprintf("no time %q", field))
			}
			r.cpu += d
		}
	}
	return r, nil
}
