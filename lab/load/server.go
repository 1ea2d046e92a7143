package load

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

	"github.com/waterline-io/waterline/lab/sandbox"
)

// RequestCost is the CPU time that a [Server] spends on a request of Steps steps, on a CPU that it has to itself.
const RequestCost = time.Millisecond

// The FIFOs of the server, in a directory.
const (
	requestsFile = "requests"
	answersFile  = "answers"
)

const answerDeadline = 20 * time.Second // while its speed is measured

// serve becomes a server that answers requests one after the other, until it is killed. A request is a line with the
// number of steps that it costs, an answer is an empty line. The input is the directory with the FIFOs.
//
// It is the shell, as with burn, and here still more so: in a server in Go the runtime's own threads were seen to wake
// up 3000 times a second, each time on the server's CPU where it has only one, and their switches were counted.
func serve(in sandbox.HelperInput) error {
	var dir string
	if err := in.Decode(&dir); err != nil {
		return err
	}
	for i, name := range []string{requestsFile, answersFile} {
		// Opened for both directions, so that the FIFO does not end when a client closes it.
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDWR, 0)
		if err == nil {
			err = unix.Dup2(fd, i)
		}
		if err != nil {
			return fmt.Errorf("opening the server's %s: %w", name, err)
		}
	}
	const loop = "while read n; do while [ $n -gt 0 ]; do n=$((n-1)); done; echo; done"
	return in.Become([]string{"/bin/sh", "-c", loop}, nil)
}

// Server is a running server of one thread.
type Server struct {
	*sandbox.Process
	Steps int           // of a request that costs RequestCost
	Cost  time.Duration // measured CPU time of such a request
}

// StartServer starts a server in a pod and measures how fast it is.
func StartServer(ctx context.Context, s *sandbox.Sandbox, p *sandbox.Pod) (server Server, err error) {
	for _, name := range []string{requestsFile, answersFile} {
		if err := unix.Mkfifo(filepath.Join(s.Dir(), name), 0o600); err != nil {
			return server, fmt.Errorf("making a FIFO: %w", err)
		}
	}
	server.Process, err = s.Start(sandbox.Command{
		Name: "the server", Group: s.ContainerGroup(p), Helper: "serve", Input: s.Dir(),
	})
	if err != nil {
		return server, err
	}
	s.AddLoad(p)
	// A step has a cost, and so has a request without steps: in an emulated machine, more than RequestCost.
	const many = 1000
	none, err := requestCost(ctx, s, p, 0)
	if err != nil {
		return server, err
	}
	some, err := requestCost(ctx, s, p, many)
	if err != nil {
		return server, err
	}
	server.Steps = max(int(many*(RequestCost-none)/max(some-none, 1)), 0)
	server.Cost, err = requestCost(ctx, s, p, server.Steps)
	return server, err
}

// requestCost measures the CPU time of a request of so many steps, by that of the server's pod. It takes the least of
// several measurements: whatever else runs on the machine costs the server caches.
func requestCost(ctx context.Context, s *sandbox.Sandbox, p *sandbox.Pod, steps int) (time.Duration, error) {
	requests, err1 := os.OpenFile(filepath.Join(s.Dir(), requestsFile), os.O_RDWR|unix.O_NONBLOCK, 0)
	answers, err2 := os.OpenFile(filepath.Join(s.Dir(), answersFile), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("connecting to the server: %w", err)
	}
	defer requests.Close()
	defer answers.Close()
	if err := answers.SetReadDeadline(time.Now().Add(answerDeadline)); err != nil {
		return 0, fmt.Errorf("connecting to the server: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = answers.SetReadDeadline(time.Now()) })
	defer stop()
	const together, times = 10, 10
	var least time.Duration
	for range times {
		cost, err := CPUTime(s, p, func() error {
			_, err := io.WriteString(requests, strings.Repeat(fmt.Sprintln(steps), together))
			if err == nil {
				_, err = io.ReadFull(answers, make([]byte, together))
			}
			return err
		})
		if err != nil {
			err = fmt.Errorf("measuring how fast the server is: %w", err)
			return 0, errors.Join(err, context.Cause(ctx), s.Running())
		}
		if least == 0 || cost < least {
			least = cost
		}
	}
	return least / together, nil
}
