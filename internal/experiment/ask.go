package experiment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lastAnswers is how long who asked waits for the answers that are missing in the end.
const lastAnswers = 30 * time.Second

// asked is what became of one request. All times are after the beginning.
type asked struct {
	due, sent, ready time.Duration // ready is 0 if there was no answer
}

// latency is counted from when the request was due, not from when it was sent: who waits with his next question for the
// answer to the last, or is late for another reason, would leave out what a slow server makes its users wait.
func (a asked) latency() time.Duration { return a.ready - a.due }

func (a asked) late() time.Duration { return a.sent - a.due }

// ask sends requests of so many steps to a server at random moments, at a mean rate, whether or not it answers, and prints
// for each when it was due, was sent and was answered, in microseconds after the beginning. The same seed makes the same
// moments.
func ask(dir string, cpu, steps int, rate float64, length time.Duration, seed uint64, out io.Writer) error {
	c := client{line: fmt.Appendln(nil, steps), all: schedule(rate, length, seed)}
	var err error
	if c.requests, err = unix.Open(filepath.Join(dir, requestsFile), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("connecting to the server: %w", err)
	}
	if c.answers, err = unix.Open(filepath.Join(dir, answersFile), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("connecting to the server: %w", err)
	}
	if err := stayOn(cpu); err != nil {
		return err
	}
	defer runtime.UnlockOSThread()
	// By default the kernel lets a thread that sleeps oversleep by 50 µs.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("asking to be woken in time: %w", err)
	}
	c.start = time.Now()
	for sent := 0; sent < len(c.all); {
		if err := c.collect(c.all[sent].due); err != nil {
			return err
		}
		_, err := unix.Write(c.requests, c.line)
		switch {
		case err == nil:
			c.all[sent].sent = time.Since(c.start)
			sent++
		case errors.Is(err, unix.EAGAIN):
			nap(100 * time.Microsecond) // the server is so far behind that the kernel queues no more
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("sending a request: %w", err)
		}
	}
	if err := c.collect(time.Since(c.start) + lastAnswers); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	for _, a := range c.all {
		fmt.Fprintln(w, a.due.Microseconds(), a.sent.Microseconds(), a.ready.Microseconds())
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing what became of the requests: %w", err)
	}
	return nil
}

// client is one connection to the server.
type client struct {
	requests, answers int
	line              []byte // a request
	start             time.Time
	all               []asked
	answered          int // the server answers in order
}

// collect takes answers as they come, until a time after the beginning or until there is one for every request.
func (c *client) collect(until time.Duration) error {
	var buf [512]byte
	for c.answered < len(c.all) {
		left := until - time.Since(c.start)
		if left <= 0 {
			return nil
		}
		if !readable(c.answers, left) {
			continue
		}
		n, err := unix.Read(c.answers, buf[:])
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("reading an answer: %w", err)
		}
		now := time.Since(c.start)
		for range n {
			if c.answered == len(c.all) {
				return errors.New("reading an answer: there are more than requests")
			}
			c.all[c.answered].ready = now
			c.answered++
		}
	}
	return nil
}

// readable waits for something to read, without the Go scheduler, which would add its own latency and, told of every
// call that waits, wake up a thread of its own for it.
func readable(fd int, longest time.Duration) bool {
	timeout := unix.NsecToTimespec(int64(longest))
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	return int(n) == 1
}

// schedule returns the moments at which to ask: independent of each other, as those of many users are.
func schedule(rate float64, length time.Duration, seed uint64) []asked {
	random := rand.New(rand.NewPCG(seed, 0))
	var all []asked
	for at := 0.0; ; {
		at += random.ExpFloat64() / rate
		due := time.Duration(at * float64(time.Second))
		if due >= length {
			return all
		}
		all = append(all, asked{due: due})
	}
}

// parseAsked reads what ask prints.
func parseAsked(text string) ([]asked, error) {
	var all []asked
	for line := range strings.Lines(text) {
		var due, sent, ready int64
		if _, err := fmt.Sscan(line, &due, &sent, &ready); err != nil {
			return nil, fmt.Errorf("reading what became of the requests: %q: %w", line, err)
		}
		all = append(all, asked{time.Duration(due) * time.Microsecond, time.Duration(sent) * time.Microsecond, time.Duration(ready) * time.Microsecond})
	}
	return all, nil
}

// inMillis converts to what tables and figures count in.
func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
