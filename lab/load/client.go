package load

import (
	"encoding/binary"
	"encoding/json"
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

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// request is the helper of [StartGenerator].
func request(in sandbox.HelperInput) error {
	var r Requests
	if err := in.Decode(&r); err != nil {
		return err
	}
	return send(r, os.Stdout)
}

// send sends requests to a server at random moments, by its connections in turn, and prints an [Outcome]. The same seed
// makes the same moments.
func send(r Requests, out io.Writer) error {
	c := client{line: []byte(r.Line + "\n"), all: r.Rates.schedule(r.Lead, r.Length, r.Seed)}
	if err := c.connect(r); err != nil {
		return err
	}
	if r.Watch != 0 {
		var err1, err2 error
		c.watched, err1 = unix.Open(fmt.Sprintf("/proc/%d/schedstat", r.Watch), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		c.clock, err2 = taskClock(r.Watch)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("watching the server: %w", err)
		}
	}
	if r.Figure != "" {
		var err error
		if c.figure, err = serveFigure(r.Figure, len(c.all)); err != nil {
			return err
		}
		defer c.figure.close()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r.CPU >= 0 {
		if err := stayOn(r.CPU); err != nil {
			return err
		}
	}
	// By default the kernel lets a thread that sleeps oversleep by 50 µs.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting the timer slack: %w", err)
	}
	scheduled := "normal"
	if r.Prioritize {
		scheduled = Prioritize()
	}
	if err := c.run(); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(Outcome{Scheduled: scheduled, Requests: c.all}); err != nil {
		return fmt.Errorf("printing what became of the requests: %w", err)
	}
	return nil
}

// client sends requests over some connections.
type client struct {
	conns []connection
	polls []unix.PollFd // of the connections
	line  []byte        // a request
	start time.Time
	all   []Request
	open  int // sent requests without an answer

	watched  int           // file descriptor of the server's schedstat; 0: none
	clock    int           // and of its CPU time, see [taskClock]
	answered time.Duration // its CPU time at the last answer
	figure   *figure       // nil: none
}

// connection leads to a server that answers in order, each time with one line.
type connection struct {
	requests, answers int   // file descriptors
	open              []int // requests without an answer, oldest first
	within            bool  // the end of a line has not been read yet
}

func (c *client) connect(r Requests) error {
	if r.Dir != "" {
		const flags = unix.O_NONBLOCK | unix.O_CLOEXEC
		requests, err1 := unix.Open(filepath.Join(r.Dir, requestsFile), unix.O_WRONLY|flags, 0)
		answers, err2 := unix.Open(filepath.Join(r.Dir, answersFile), unix.O_RDONLY|flags, 0)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("connecting to the server: %w", err)
		}
		c.add(requests, answers)
		return nil
	}
	network := "tcp"
	if strings.HasPrefix(r.Address, "/") {
		network = "unix"
	}
	for range r.Connections {
		fd, err := dial(network, r.Address)
		if err != nil {
			return fmt.Errorf("connecting to the server: %w", err)
		}
		c.add(fd, fd)
	}
	return nil
}

// dial returns a connection that the Go scheduler does not know.
func dial(network, address string) (fd int, err error) {
	const longest = 20 * time.Second
	conn, err := net.DialTimeout(network, address, longest)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var dupErr error
	// The duplicate keeps the options of the connection: without delay and non-blocking.
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
	if c.figure != nil {
		c.figure.start.Store(&c.start)
	}
	for sent := 0; sent < len(c.all); {
		if err := c.wait(c.all[sent].Due); err != nil {
			return err
		}
		conn := &c.conns[sent%len(c.conns)]
		c.all[sent].Ahead, c.all[sent].Server = c.open, c.readServer()
		_, err := unix.Write(conn.requests, c.line)
		switch {
		case err == nil:
			c.all[sent].Sent = time.Since(c.start)
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
	for end := time.Since(c.start) + AnswerTimeout; c.open > 0 && time.Since(c.start) < end; {
		if err := c.collect(end); err != nil {
			return err
		}
	}
	return nil
}

// wait takes answers until a time after the start.
func (c *client) wait(until time.Duration) error {
	for time.Since(c.start) < until {
		if err := c.collect(until); err != nil {
			return err
		}
	}
	return nil
}

// collect waits for answers, until a time after the start at most, and takes those that are there.
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

// take reads the answers of a connection. An answer is a line; an error begins with a minus, as Redis has it.
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
	now, server := time.Since(c.start), c.readServer()
	for _, char := range buf[:n] {
		if len(conn.open) == 0 {
			return errors.New("reading an answer: there are more answers than requests")
		}
		request := &c.all[conn.open[0]]
		request.Refused = request.Refused || char == '-' && !conn.within
		conn.within = char != '\n'
		if !conn.within {
			request.Took, c.answered = server.Ran-max(request.Server.Ran, c.answered), server.Ran
			request.Ready, request.Server = now, server.Since(request.Server)
			if c.figure != nil {
				c.figure.add(*request)
			}
			conn.open = conn.open[1:]
			c.open--
		}
	}
	return nil
}

// readServer returns how long the server has run and waited so far; 0 if it is not watched.
func (c *client) readServer() host.Schedstat {
	if c.watched == 0 {
		return host.Schedstat{}
	}
	var buf [64]byte
	n, err := unix.Pread(c.watched, buf[:], 0)
	if err != nil {
		return host.Schedstat{}
	}
	s, _ := host.ParseSchedstat(buf[:n])
	if n, err = unix.Read(c.clock, buf[:8]); err != nil || n != 8 {
		return host.Schedstat{}
	}
	s.Ran = time.Duration(binary.NativeEndian.Uint64(buf[:8]))
	return s
}

// taskClock opens the CPU time of a thread, in nanoseconds. It is exact, while the one in schedstat, of a thread that
// runs, is as old as the last tick.
func taskClock(tid int) (fd int, err error) {
	fd, err = unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER0, Config: unix.PERF_COUNT_SW_TASK_CLOCK,
	}, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("opening its CPU time: %w", err)
	}
	return fd, nil
}
