package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// request is how much CPU time the server spends on one request, on a CPU that it has to itself.
const request = time.Millisecond

// The FIFOs of the server, in a directory.
const (
	requestsFile = "requests"
	answersFile  = "answers"
)

// serve becomes a server that answers requests one after the other, until the process is killed. A request is a line with
// the number of steps that it costs, an answer is an empty line.
//
// It is the shell, as with burn, and here still more so: in a server in Go the runtime's own threads were seen to wake up
// 3000 times a second, each time on the server's CPU where it has only one, and what was counted was their switches.
func serve(dir string, parent int) error {
	for i, name := range []string{requestsFile, answersFile} {
		// For both directions, so that the FIFO has no end when somebody closes his.
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDWR, 0)
		if err == nil {
			err = unix.Dup2(fd, i)
		}
		if err != nil {
			return fmt.Errorf("opening the server's %s: %w", name, err)
		}
	}
	return become([]string{"/bin/sh", "-c", "while read n; do while [ $n -gt 0 ]; do n=$((n-1)); done; echo; done"}, nil, parent)
}

// server is a server that runs, and what was found out about it.
type server struct {
	*process
	steps int           // of a request
	cost  time.Duration // CPU time of a request
}

// startServer starts a server in a pod.
func (l *lab) startServer(ctx context.Context, p *pod) (s server, err error) {
	for _, name := range []string{requestsFile, answersFile} {
		if err := unix.Mkfifo(filepath.Join(l.dir, name), 0o600); err != nil {
			return s, fmt.Errorf("making a FIFO: %w", err)
		}
	}
	if s.process, err = l.start("the server", l.kubelet.containerDir(p), "serve", "--dir", l.dir); err != nil {
		return s, err
	}
	l.pods = append(l.pods, p)
	// A step costs something, and so does a request without any: in an emulated machine, more than a request shall.
	const many = 1000
	none, err := l.cost(ctx, p, 0)
	if err != nil {
		return s, err
	}
	some, err := l.cost(ctx, p, many)
	if err != nil {
		return s, err
	}
	s.steps = max(int(many*(request-none)/max(some-none, 1)), 0)
	s.cost, err = l.cost(ctx, p, s.steps)
	return s, err
}

// cost measures the CPU time of a request of so many steps, by that of the server's pod.
func (l *lab) cost(ctx context.Context, p *pod, steps int) (time.Duration, error) {
	requests, err1 := os.OpenFile(filepath.Join(l.dir, requestsFile), os.O_RDWR|unix.O_NONBLOCK, 0)
	answers, err2 := os.OpenFile(filepath.Join(l.dir, answersFile), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("connecting to the server: %w", err)
	}
	defer requests.Close()
	defer answers.Close()
	if err := answers.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, fmt.Errorf("connecting to the server: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = answers.SetReadDeadline(time.Now()) })
	defer stop()
	const together = 10
	cost, err := l.leastCost(p, func() error {
		_, err := io.WriteString(requests, strings.Repeat(fmt.Sprintln(steps), together))
		if err == nil {
			_, err = io.ReadFull(answers, make([]byte, together))
		}
		return err
	})
	if err != nil {
		return 0, errors.Join(fmt.Errorf("measuring how fast the server is: %w", err), context.Cause(ctx), l.running())
	}
	return cost / together, nil
}

// leastCost measures the CPU time that a pod spends on what is done, the least of several times: what else the machine does
// costs it caches.
func (l *lab) leastCost(p *pod, do func() error) (least time.Duration, err error) {
	for range 10 {
		took, err := l.costOf(p, do)
		if err != nil {
			return 0, err
		}
		if least == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

// costOf measures the CPU time that a pod spends on what is done.
func (l *lab) costOf(p *pod, do func() error) (time.Duration, error) {
	before, err := l.box.usage(l.kubelet.dir(p))
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := l.box.usage(l.kubelet.dir(p))
	return after - before, err
}
