package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// program finds an executable that an experiment needs.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w; install the package with it, on Debian or Ubuntu apt-get install %s", ErrUnusable, err, name)
	}
	return path, nil
}

// startEncoder runs ffmpeg in a pod: it makes a test picture and encodes it, on all CPUs, for ever. It returns how many
// frames are done so far.
func (l *lab) startEncoder(p *pod) (*frames, error) {
	path, err := program("ffmpeg")
	if err != nil {
		return nil, err
	}
	done := new(frames)
	_, err = l.startIn("ffmpeg", l.kubelet.containerDir(p), done, "exec", "--", path, "-nostdin", "-loglevel", "error",
		"-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25", "-c:v", "libx264", "-preset", "medium",
		"-threads", strconv.Itoa(runtime.NumCPU()), "-progress", "pipe:1", "-stats_period", "0.1", "-f", "null", "-")
	l.pods = append(l.pods, p)
	return done, err
}

// frames counts them in what ffmpeg says of its progress, in lines such as frame=123.
type frames struct {
	mu   sync.Mutex
	line []byte // whose end is not there yet
	n    int64
}

// Write takes lines as they come.
func (f *frames) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.line = append(f.line, b...)
	for {
		line, rest, whole := bytes.Cut(f.line, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if number, found := bytes.CutPrefix(line, []byte("frame=")); found {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64); err == nil {
				f.n = n
			}
		}
		f.line = rest
	}
}

func (f *frames) count() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return float64(f.n)
}

// stress is stress-ng, which counts what it did over its whole life, and tells when it is stopped.
type stress struct {
	*process
	report string
}

// startStress runs stress-ng in a pod: as many loops as there are CPUs, all multiplying matrices, so that every operation is
// as long as the others.
func (l *lab) startStress(p *pod) (stress, error) {
	path, err := program("stress-ng")
	if err != nil {
		return stress{}, err
	}
	s := stress{report: filepath.Join(l.dir, "stress.yaml")}
	s.process, err = l.start("stress-ng", l.kubelet.containerDir(p), "exec", "--", path, "--cpu", strconv.Itoa(runtime.NumCPU()),
		"--cpu-method", "matrixprod", "--timeout", "0", "--metrics", "--yaml", s.report, "--temp-path", l.dir)
	l.pods = append(l.pods, p)
	return s, err
}

// stop ends stress-ng and returns its operations a second.
func (l *lab) stop(ctx context.Context, s stress) (perSecond float64, err error) {
	l.procs = slices.DeleteFunc(l.procs, func(p *process) bool { return p == s.process })
	defer func() { err = errors.Join(err, s.kill()) }()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		return 0, fmt.Errorf("stopping stress-ng: %w", err)
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(patience):
		return 0, fmt.Errorf("stopping stress-ng: it still runs after %v", patience)
	}
	content, err := os.ReadFile(s.report)
	if err != nil {
		return 0, fmt.Errorf("reading what stress-ng did: %w", err)
	}
	return parseStress(string(content))
}

// parseStress finds in stress-ng's report how many operations it did a second.
func parseStress(report string) (float64, error) {
	const key = "bogo-ops-per-second-real-time:"
	_, rest, found := strings.Cut(report, key)
	if !found {
		return 0, fmt.Errorf("reading what stress-ng did: there is no %s in %q", key, report)
	}
	number, _, _ := strings.Cut(rest, "\n")
	perSecond, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return 0, fmt.Errorf("reading what stress-ng did: %w", err)
	}
	return perSecond, nil
}
