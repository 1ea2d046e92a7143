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
func (l *lab) startEncoder(p *pod) (*counter, error) {
	path, err := program("ffmpeg")
	if err != nil {
		return nil, err
	}
	done := &counter{key: "frame="}
	_, err = l.startIn("ffmpeg", l.kubelet.containerDir(p), done, "exec", "--", path, "-nostdin", "-loglevel", "error",
		"-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25", "-c:v", "libx264", "-preset", "medium",
		"-threads", strconv.Itoa(runtime.NumCPU()), "-progress", "pipe:1", "-stats_period", "0.1", "-f", "null", "-")
	l.pods = append(l.pods, p)
	return done, err
}

// counter reads how much a process has done, which it says in lines such as frame=123.
type counter struct {
	key  string // that such a line begins with
	mu   sync.Mutex
	line []byte // whose end is not there yet
	n    int64
}

// Write takes lines as they come.
func (c *counter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line = append(c.line, b...)
	for {
		line, rest, whole := bytes.Cut(c.line, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if number, found := bytes.CutPrefix(line, []byte(c.key)); found {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64); err == nil {
				c.n = n
			}
		}
		c.line = rest
	}
}

func (c *counter) count() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(c.n)
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
