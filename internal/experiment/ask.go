package experiment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/observe/host"
)

// lastAnswers is how long who asked waits for the answers that are missing in the end.
const lastAnswers = 30 * time.Second

// asked is what became of one request. All times are after the beginning.
type asked struct {
	due, sent, ready time.Duration // ready is 0 if there was no answer
	refused          bool          // the answer was an error
	ahead            int           // requests that had no answer yet when this one was sent
	server           schedstat     // of the server meanwhile; 0 if it was not watched
}

// latency is counted from when the request was due, not from when it was sent: who waits with his next question for the
// answer to the last, or is late for another reason, would leave out what a slow server makes its users wait.
func (a asked) latency() time.Duration { return a.ready - a.due }

func (a asked) late() time.Duration { return a.sent - a.due }

// question says what is asked, of whom, and when.
type question struct {
	dir         string        // with the server's FIFOs; "": address
	address     string        // of the server: the path of a Unix socket, or host:port
	connections int           // to the address
	cpu         int           // to stay on; -1: any
	urgent      bool          // be woken before everything else on the machine
	watch       int           // pid of the server, to see how long it has a CPU and waits for one; 0: nobody looks
	line        string        // the request
	rates       course        // of requests, a second
	lead        time.Duration // before the course, at its first rate
	length      time.Duration // of the course
	seed        uint64
}

// ask sends requests to a server at random moments, at mean rates, whether or not it answers, by its connections in turn.
// It prints how it was scheduled and what became of each request, times in microseconds. The same seed makes the same moments.
func ask(q question, out io.Writer) error {
	c := client{line: []byte(q.line + "\n"), all: q.rates.schedule(q.lead, q.length, q.seed)}
	if err := c.connect(q); err != nil {
		return err
	}
	if q.watch != 0 {
		var err error
		if c.watched, err = unix.Open(fmt.Sprintf("/proc/%d/schedstat", q.watch), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("watching the server: %w", err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if q.cpu >= 0 {
		if err := stayOn(q.cpu); err != nil {
			return err
		}
	}
	// By default the kernel lets a thread that sleeps oversleep by 50 µs.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("asking to be woken in time: %w", err)
	}
	scheduled := "normal"
	if q.urgent {
		scheduled = hurry()
	}
	if err := c.run(); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, scheduled)
	for _, a := range c.all {
		fmt.Fprintln(w, a.due.Microseconds(), a.sent.Microseconds(), a.ready.Microseconds(), a.refused, a.ahead, a.server.ran.Microseconds(), a.server.waited.Microseconds())
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing what became of the requests: %w", err)
	}
	return nil
}

// hurry has this thread come before all others that are not as urgent, and says how: the real-time class where the kernel lets
// us, else the best of the normal one. On a 6.18 whose CPUs others kept busy the generator was late by 0.2 to 2.6 ms, p99, in the
// first, by 0.9 to 4.8 ms in the second, and by 3.6 to 5.4 ms there without the short slice, which kernels before 6.12 ignore.
func hurry() string {
	fifo := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}
	if unix.SchedSetAttr(0, &fifo, 0) == nil {
		return "SCHED_FIFO"
	}
	best := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Nice: -20, Runtime: uint64(100 * time.Microsecond)}
	if unix.SchedSetAttr(0, &best, 0) == nil {
		return "nice -20"
	}
	return "normal"
}

// client asks, by some connections.
type client struct {
	conns []connection
	polls []unix.PollFd // of the connections
	line  []byte        // a request
	start time.Time
	all   []asked
	open  int // requests without an answer, of those that were sent

	watched int // the server's schedstat; 0: nobody looks
}

// connection leads to a server that answers in order, each time with one line.
type connection struct {
	requests, answers int   // file descriptors
	open              []int // requests without an answer, oldest first
	within            bool  // a line whose end has not been read yet
}

func (c *client) connect(q question) error {
	if q.dir != "" {
		requests, err1 := unix.Open(filepath.Join(q.dir, requestsFile), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		answers, err2 := unix.Open(filepath.Join(q.dir, answersFile), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("connecting to the server: %w", err)
		}
		c.add(requests, answers)
		return nil
	}
	network := "tcp"
	if strings.HasPrefix(q.address, "/") {
		network = "unix"
	}
	for range q.connections {
		fd, err := dial(network, q.address)
		if err != nil {
			return fmt.Errorf("connecting to the server: %w", err)
		}
		c.add(fd, fd)
	}
	return nil
}

// dial returns a connection that the Go scheduler knows nothing of.
func dial(network, address string) (fd int, err error) {
	conn, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var dupErr error
	// What is duplicated is still without delay, and does not block.
	err = raw.Control(func(original uintptr) { fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, dupErr)
}

func (c *client) add(requests, answers int) {
	c.conns = append(c.conns, connection{requests: requests, answers: answers})
	c.polls = append(c.polls, unix.PollFd{Fd: int32(answers), Events: unix.POLLIN})
}

// run sends every request when it is due and takes the answers.
func (c *client) run() error {
	c.start = time.Now()
	for sent := 0; sent < len(c.all); {
		if err := c.wait(c.all[sent].due); err != nil {
			return err
		}
		conn := &c.conns[sent%len(c.conns)]
		c.all[sent].ahead, c.all[sent].server = c.open, c.look()
		_, err := unix.Write(conn.requests, c.line)
		switch {
		case err == nil:
			c.all[sent].sent = time.Since(c.start)
			conn.open = append(conn.open, sent)
			c.open++
			sent++
		case errors.Is(err, unix.EAGAIN):
			// The server is so far behind that the kernel queues no more.
			if err := c.wait(time.Since(c.start) + 100*time.Microsecond); err != nil {
				return err
			}
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("sending a request: %w", err)
		}
	}
	for end := time.Since(c.start) + lastAnswers; c.open > 0 && time.Since(c.start) < end; {
		if err := c.collect(end); err != nil {
			return err
		}
	}
	return nil
}

// wait takes answers until a time after the beginning.
func (c *client) wait(until time.Duration) error {
	for time.Since(c.start) < until {
		if err := c.collect(until); err != nil {
			return err
		}
	}
	return nil
}

// collect waits for answers, until a time after the beginning at most, and takes those that are there.
func (c *client) collect(until time.Duration) error {
	left := until - time.Since(c.start)
	if left <= 0 || !readable(c.polls, left) {
		return nil
	}
	for i := range c.polls {
		if c.polls[i].Revents == 0 {
			continue
		}
		if err := c.take(&c.conns[i]); err != nil {
			return err
		}
	}
	return nil
}

// take reads the answers that a connection has. One is a line; that of an error begins with a minus, as Redis has it.
func (c *client) take(conn *connection) error {
	var buf [512]byte
	n, err := unix.Read(conn.answers, buf[:])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("reading an answer: %w", err)
	case n == 0:
		return errors.New("reading an answer: the server hung up")
	}
	now, server := time.Since(c.start), c.look()
	for _, char := range buf[:n] {
		if len(conn.open) == 0 {
			return errors.New("reading an answer: there are more than requests")
		}
		request := &c.all[conn.open[0]]
		request.refused = request.refused || char == '-' && !conn.within
		conn.within = char != '\n'
		if !conn.within {
			request.ready, request.server = now, server.since(request.server)
			conn.open = conn.open[1:]
			c.open--
		}
	}
	return nil
}

// look returns what the kernel says of the server.
func (c *client) look() (s schedstat) {
	if c.watched == 0 {
		return s
	}
	var buf [64]byte
	n, err := unix.Pread(c.watched, buf[:], 0)
	if err != nil {
		return s
	}
	return parseSchedstat(buf[:n])
}

// schedstat is how long a process has had a CPU, and how long it wanted one and had none, as /proc/PID/schedstat tells. Of one that
// has a CPU the kernel counts that with each tick, which may be 10 ms ago.
type schedstat struct{ ran, waited time.Duration }

func (s schedstat) since(before schedstat) schedstat {
	return schedstat{s.ran - before.ran, s.waited - before.waited}
}

func readSchedstat(pid int) (schedstat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return schedstat{}, fmt.Errorf("asking how long a process had a CPU and waited for one: %w", err)
	}
	return parseSchedstat(content), nil
}

func parseSchedstat(text []byte) schedstat {
	s, _ := host.ParseSchedstat(text)
	return schedstat{s.Ran, s.Waited}
}

// readable waits for something to read, without the Go scheduler, which would add its own latency and, told of every
// call that waits, wake up a thread of its own for it.
func readable(fds []unix.PollFd, longest time.Duration) bool {
	timeout := unix.NsecToTimespec(int64(longest))
	n, _, failed := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	return failed == 0 && n > 0
}

// parseAsked reads what ask prints.
func parseAsked(text string) (scheduled string, all []asked, err error) {
	scheduled, text, _ = strings.Cut(text, "\n")
	for line := range strings.Lines(text) {
		var due, sent, ready, ran, waited int64
		var a asked
		if _, err := fmt.Sscan(line, &due, &sent, &ready, &a.refused, &a.ahead, &ran, &waited); err != nil {
			return "", nil, fmt.Errorf("reading what became of the requests: %q: %w", line, err)
		}
		const us = time.Microsecond
		a.due, a.sent, a.ready = time.Duration(due)*us, time.Duration(sent)*us, time.Duration(ready)*us
		a.server = schedstat{time.Duration(ran) * us, time.Duration(waited) * us}
		all = append(all, a)
	}
	return scheduled, all, nil
}

// inMillis converts to what tables and figures count in.
func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
