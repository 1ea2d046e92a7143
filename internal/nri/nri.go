// Package nri is a client of the container runtime's Node Resource Interface (NRI). Before a container's first
// instruction runs, it passes the container's CPUs and oom_score_adj to the runtime, and lets the caller write the
// files of the container's cgroup. It decides nothing: its caller does, with [Config.Place] and [Config.Start]. Without
// NRI in the runtime, or without a connection, containers start with the runtime's settings, and the agent's loop
// changes them afterwards.
//
// The client sets cpuset.cpus and, if the placement has them, cpuset.mems and oom_score_adj. It never changes another
// setting of the runtime's spec. Shares, quota and memory limits there appear in the pod's status, where they count as
// requests or limits of the pod; and on cgroup v1 the runtime could not create a container whose quota exceeds that of
// its pod.
//
// It uses the messages and the transport of github.com/containerd/nri, but not its stub (pkg/stub, v0.12.5). While
// the stub waits for the runtime's Configure, without a time limit, it holds a lock that its handler of lost
// connections needs. If the runtime ends in between, the stub waits for ever. Also, each error of a handler makes
// the creation of the container fail, and each panic ends the process.
//
// The transport logs lost connections with logrus's standard logger, to standard error. A program that does not want
// these lines sets the output of that logger.
//
// If two plugins set the CPUs, or the oom_score_adj, of one container, the runtime refuses to create the container,
// whatever the order of the plugins. This client cannot detect that. A node must have only one such plugin.
package nri

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// DefaultSocket is the default socket of container runtimes.
const DefaultSocket = "/var/run/nri/nri.sock"

// SlowAnswer is the time from which an answer counts as slow. The runtime waits for the answer before it
// continues with the container, for at most two seconds; then it drops the connection.
const SlowAnswer = 5 * time.Millisecond

// Subjects of [Config.Report].
const (
	AboutConnection = "nri"         // the connection to the runtime
	AboutAnswers    = "nri answers" // the answers to the runtime
)

// defaultTimeout is how long runtimes wait for an answer unless they say otherwise.
const defaultTimeout = 2 * time.Second

const (
	minBackoff  = 100 * time.Millisecond // before the second attempt to connect
	maxBackoff  = 30 * time.Second       // between attempts
	socketPoll  = time.Second            // between checks for a new socket
	stableAfter = 10 * time.Second       // a connection that lasted this long resets the backoff
)

// Config is the configuration of a client.
type Config struct {
	Socket string // "": DefaultSocket
	Index  string // two digits that order plugins; "": "90", late, so that Place sees the settings of earlier plugins
	Name   string // "": "waterline"
	Sys    string // mount point of sysfs; "": /sys

	// Place returns the placement of a container that is created or updated, or false to leave it to the
	// runtime. It is called from several goroutines, and must return at once because the container waits. It is
	// not called after Run has returned. It may be nil.
	Place func(model.RuntimeContainer) (model.Placement, bool)
	// Start is called for each container whose cgroup exists with all of the runtime's settings, and whose first
	// instruction the runtime runs once Start has returned. It must return when the context ends, which is after half
	// of the time that the runtime would wait. It is called from several goroutines, and may be nil.
	Start func(context.Context, model.RuntimeContainer)
	// Runs is called for each container that exists when a connection is established. It may be nil, and must return
	// at once.
	Runs func(model.RuntimeContainer)
	// Report is called when the state of a subject changes; a nil error means that it works again. It may be
	// nil.
	Report func(about string, err error)
}

// Stats are the counters of a client.
type Stats struct {
	Connected   bool          // the runtime now sends requests about its containers
	Connections uint64        // connections established
	Requests    uint64        // requests answered
	Slow        uint64        // answers that took longer than SlowAnswer, of those that do not wait for Start
	Slowest     time.Duration // longest time of such an answer
	Late        uint64        // containers that started although Start had not done its work in time
}

// Client keeps a connection to the container runtime.
type Client struct {
	cfg Config

	connected   atomic.Bool
	connections atomic.Uint64
	requests    atomic.Uint64
	slow        atomic.Uint64
	slowest     atomic.Int64
	late        atomic.Uint64

	mu       sync.Mutex
	reported map[string]string // text of the last error reported, by subject; "": none
}

// New returns a client. [Client.Run] connects it.
func New(cfg Config) *Client {
	cfg.Socket = cmp.Or(cfg.Socket, DefaultSocket)
	cfg.Index = cmp.Or(cfg.Index, "90")
	cfg.Name = cmp.Or(cfg.Name, "waterline")
	cfg.Sys = cmp.Or(cfg.Sys, "/sys")
	return &Client{cfg: cfg, reported: map[string]string{}}
}

// Stats returns the current counters.
func (c *Client) Stats() Stats {
	return Stats{
		Connected: c.connected.Load(), Connections: c.connections.Load(), Requests: c.requests.Load(),
		Slow: c.slow.Load(), Slowest: time.Duration(c.slowest.Load()), Late: c.late.Load(),
	}
}

// Run connects to the runtime, and reconnects when the connection is lost, until the context ends. It finds a
// runtime that starts late or restarts within about a second, by its new socket.
func (c *Client) Run(ctx context.Context) {
	wait := minBackoff
	for {
		attempted := readSocketID(c.cfg.Socket)
		s := newSession(c)
		err := s.run(ctx)
		c.connected.Store(false)
		if ctx.Err() != nil {
			return
		}
		c.report(AboutConnection, fmt.Errorf("new containers get their CPUs and limits only after they start: %w", err))
		// A connection that fails soon does not reset the backoff, or the client would reconnect ten times a second.
		if since := s.since.Load(); since != nil && time.Since(*since) >= stableAfter {
			wait = minBackoff
		}
		if c.sleep(ctx, attempted, wait) {
			wait = minBackoff
		} else {
			wait = min(2*wait, maxBackoff)
		}
	}
}

// sleep waits for a time, or until a new socket exists. It returns true in the second case.
func (c *Client) sleep(ctx context.Context, attempted socketID, wait time.Duration) bool {
	for end := time.Now().Add(wait); ; {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(min(left, socketPoll)):
		}
		if now := readSocketID(c.cfg.Socket); now != (socketID{}) && now != attempted {
			return true
		}
	}
}

// socketID tells two sockets at the same path apart.
type socketID struct {
	device, inode uint64
	changed       int64 // ctime in nanoseconds, because inodes are reused
}

// readSocketID returns the zero value if there is no socket.
func readSocketID(path string) socketID {
	info, err := os.Stat(path)
	if err != nil {
		return socketID{}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return socketID{}
	}
	return socketID{stat.Dev, stat.Ino, stat.Ctim.Nano()}
}

// report passes an error on if it differs from the last report of its subject.
func (c *Client) report(about string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported[about] == text {
		return
	}
	c.reported[about] = text
	if c.cfg.Report != nil {
		c.cfg.Report(about, err)
	}
}

// count counts an answer that did not wait for [Config.Start].
func (c *Client) count(took time.Duration) {
	if took > SlowAnswer {
		c.slow.Add(1)
	}
	for {
		slowest := c.slowest.Load()
		if int64(took) <= slowest || c.slowest.CompareAndSwap(slowest, int64(took)) {
			return
		}
	}
}
