package redisbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/waterline-io/waterline/lab/counter"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// The programs that are batch load.
const (
	FFmpeg   = "ffmpeg"
	StressNG = "stress-ng"
)

// startEncoder runs ffmpeg in a pod: it generates a picture and encodes it, with a thread for each CPU, without end. It
// returns the count of encoded frames.
func startEncoder(s *sandbox.Sandbox, p *sandbox.Pod) (*counter.Counter, error) {
	path, err := findProgram(FFmpeg)
	if err != nil {
		return nil, err
	}
	frames := counter.New("frame=")
	_, err = s.Start(sandbox.Command{Name: FFmpeg, Group: s.ContainerGroup(p), Stdout: frames, Program: []string{
		path, "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25",
		"-c:v", "libx264", "-preset", "medium", "-threads", strconv.Itoa(runtime.NumCPU()),
		"-progress", "pipe:1", "-stats_period", "0.1", "-f", "null", "-",
	}})
	return frames, err
}

// stress is stress-ng. It counts its operations over its whole life, and reports them when it is stopped.
type stress struct {
	*sandbox.Process
	report string // file
}

// Stressors are the kinds of stress-ng that are batch load, with its arguments: each with as many processes as there
// are CPUs. All but matrix do harm that weights do not hold off.
func Stressors() map[string][]string {
	cpus := strconv.Itoa(runtime.NumCPU())
	return map[string][]string{
		// All multiply matrices, so that every operation takes as long as the others.
		"matrix":  {"--cpu", cpus, "--cpu-method", "matrixprod"},
		"stream":  {"--stream", cpus}, // memory bandwidth
		"cache":   {"--cache", cpus},  // the last-level cache
		"writers": {"--hdd", cpus, "--hdd-bytes", "256m", "--hdd-write-size", "64k"},
		"forks":   {"--fork", cpus, "--fork-max", "64"}, // thousands of short tasks
	}
}

// startStress runs stress-ng in a pod.
func startStress(s *sandbox.Sandbox, p *sandbox.Pod, kind string) (stress, error) {
	path, err := findProgram(StressNG)
	if err != nil {
		return stress{}, err
	}
	st := stress{report: filepath.Join(s.Dir(), "stress.yaml")}
	program := []string{path, "--timeout", "0", "--metrics", "--yaml", st.report, "--temp-path", s.Dir()}
	st.Process, err = s.Start(sandbox.Command{
		Name: StressNG, Group: s.ContainerGroup(p), Ends: true,
		Program: append(program, Stressors()[cmp.Or(kind, "matrix")]...),
	})
	s.AddLoad(p)
	return st, err
}

// stop ends stress-ng and returns its operations per second. It fails if stress-ng has ended before.
func (st stress) stop(ctx context.Context) (perSecond float64, err error) {
	const timeout = 2 * time.Minute // with a hundredth of a CPU for all of its processes, 20 s were too short
	if err := st.Ended(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Kill()) }()
	if err := syscall.Kill(st.PID(), syscall.SIGINT); err != nil {
		return 0, fmt.Errorf("stopping stress-ng: %w", err)
	}
	select {
	case <-st.Done():
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(timeout):
		return 0, fmt.Errorf("stopping stress-ng: it still runs after %v", timeout)
	}
	content, err := os.ReadFile(st.report)
	if err != nil {
		return 0, fmt.Errorf("reading the report of stress-ng: %w", err)
	}
	return parseStress(string(content))
}

// parseStress finds the operations per second in stress-ng's report.
func parseStress(report string) (float64, error) {
	const key = "bogo-ops-per-second-real-time:"
	_, rest, found := strings.Cut(report, key)
	if !found {
		return 0, fmt.Errorf("reading the report of stress-ng: there is no %s in %q", key, report)
	}
	number, _, _ := strings.Cut(rest, "\n")
	perSecond, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return 0, fmt.Errorf("reading the report of stress-ng: %w", err)
	}
	return perSecond, nil
}
