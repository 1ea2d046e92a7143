package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// startServer starts the server in a pod and returns how many steps take it as long as a request shall.
func (l *lab) startServer(ctx context.Context, p *pod) (server *process, steps int, err error) {
	for _, name := range []string{requestsFile, answersFile} {
		if err := unix.Mkfifo(filepath.Join(l.dir, name), 0o600); err != nil {
			return nil, 0, fmt.Errorf("making a FIFO: %w", err)
		}
	}
	if server, err = l.start("the server", l.kubelet.containerDir(p), "serve", "--dir", l.dir); err != nil {
		return nil, 0, err
	}
	l.pods = append(l.pods, p)
	steps, err = l.calibrate(ctx, p)
	return server, steps, err
}

// calibrate finds out how many steps take the server as long as a request shall, by the CPU time of its pod.
func (l *lab) calibrate(ctx context.Context, p *pod) (int, error) {
	var files [2]*os.File
	for i, name := range []string{requestsFile, answersFile} {
		f, err := os.OpenFile(filepath.Join(l.dir, name), os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			return 0, fmt.Errorf("opening the server's %s: %w", name, err)
		}
		defer f.Close()
		files[i] = f
	}
	stop := context.AfterFunc(ctx, func() { _ = files[1].SetReadDeadline(time.Now()) })
	defer stop()
	exchange := func(steps int) (time.Duration, error) {
		before, err := l.box.usage(l.kubelet.dir(p))
		if err != nil {
			return 0, err
		}
		_, err1 := fmt.Fprintln(files[0], steps)
		err2 := files[1].SetReadDeadline(time.Now().Add(patience))
		_, err3 := files[1].Read(make([]byte, 1))
		if err := errors.Join(err1, err2, err3); err != nil {
			return 0, errors.Join(fmt.Errorf("measuring how fast the server is: %w", err), context.Cause(ctx), l.running())
		}
		after, err := l.box.usage(l.kubelet.dir(p))
		return after - before, err
	}
	// The fastest of several: what else the machine does costs the server caches.
	const many, times = 20000, 10
	var fastest time.Duration
	for range times {
		took, err := exchange(many)
		if err != nil {
			return 0, err
		}
		if fastest == 0 || took < fastest {
			fastest = took
		}
	}
	return max(int(many*request/max(fastest, 1)), 1), nil
}
