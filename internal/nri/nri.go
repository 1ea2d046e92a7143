// Package nri is the agent's end of the container runtime's Node Resource Interface: it hands the runtime the CPUs of a
// container, and how soon the kernel kills it for want of memory, before the container's first instruction runs. It carries and decides nothing; where the runtime has no such
// interface, or the connection is down, containers start as the runtime sees fit and the agent's loop moves them.
//
// Of the runtime's settings it touches cpuset.cpus, and cpuset.mems and oom_score_adj if told to, and never any other: shares, quota
// and memory limits in the runtime's spec are reported as the pod's status, and the scheduler counts them.
//
// It speaks the protocol with the messages and the transport of containerd/nri, but without that module's stub. The stub
// waits without a limit for the runtime's Configure while it holds the lock that its own notice of a lost connection
// needs: a runtime that ends in between leaves it waiting for ever (v0.12.5). The stub also ends a container's creation
// with every error of a handler, and the process with every panic.
//
// The transport writes what it thinks of lost connections to logrus's standard logger, on standard error. A program that
// does not want that sets the logger's output.
//
// Two plugins that set the CPUs, or the oom_score_adj, of one container make the runtime refuse to create it, whatever their order. Nothing here
// can see that coming; a node must have one of them only.
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
)

// DefaultSocket is where runtimes listen unless they are told otherwise.
const DefaultSocket = "/var/run/nri/nri.sock"

// SlowAnswer is how long an answer may take. The runtime waits for it before it goes on with the container, two seconds
// at most, after which it drops the connection.
const SlowAnswer = 5 * time.Millisecond

// What the client reports about.
const (
	AboutConnection = "nri"         // whether the runtime is connected
	AboutAnswers    = "nri answers" // whether what Place said could be handed on
)

const (
	firstWait = 100 * time.Millisecond // before the second try to connect
	longWait  = 30 * time.Second       // between tries at most
	look      = time.Second            // between looks for a new socket
	settled   = 10 * time.Second       // a connection that lasted this long was a good one
)

// Placement is where a container may run, in the kernel's lists such as "0-3,8", and what it starts with besides. The zero value of
// each leaves as it is what the runtime would do.
type Placement struct {
	CPUs     string
	Mems     string // NUMA nodes
	OOMScore int    // oom_score_adj of its first process, -1000 to 1000; only when it is created
}

// Container is what the runtime tells of a container.
type Container struct {
	PodUID    string // as the kubelet knows it: for a static pod, the hash of its manifest
	Namespace string
	Pod       string
	Name      string
	ID        string
	Dir       string // its cgroup, relative to the root of the hierarchy and without a leading slash; "" if unknown
	Update    bool   // it runs already, and all of its settings are written again

	// CPUs and Mems are what it gets if nothing is said. When it is created they are empty, except where the kubelet's
	// static policy or another plugin has chosen.
	CPUs, Mems string
	OOMScore   int // likewise; 0 also if the runtime does not tell
}

// Config says whom a client talks to, and what it says.
type Config struct {
	Socket string // "": DefaultSocket
	Index  string // two digits that order plugins; "": "90", late, so that Container shows what others have chosen
	Name   string // "": "waterline"
	Sys    string // where sysfs is mounted; "": /sys

	// Place says where a container that is created or updated may run, or false if there is nothing to say. It is called
	// from several goroutines, and must answer at once: the container waits. It is not called after Run has returned.
	Place func(Container) (Placement, bool)
	// Seen is told of each container that is about to be created, after Place was asked about it, and when a connection
	// has come about of each that there is. It may be nil, and must return at once.
	Seen func(Container)
	// Report is told how things stand, only when that changes; nil means well again. It may be nil.
	Report func(about string, err error)
}

// Stats is what a client counts.
type Stats struct {
	Connected   bool          // the runtime asks us about its containers now
	Connections uint64        // that came about
	Requests    uint64        // that were answered
	Slow        uint64        // of them, that took longer than SlowAnswer
	Slowest     time.Duration // answer of all
}

// Client keeps a connection to the container runtime.
type Client struct {
	cfg Config

	connected   atomic.Bool
	connections atomic.Uint64
	requests    atomic.Uint64
	slow        atomic.Uint64
	slowest     atomic.Int64

	mu   sync.Mutex
	said map[string]string // what was last reported, "" that all is well
}

// New returns a client that is not connected.
func New(cfg Config) *Client {
	cfg.Socket = cmp.Or(cfg.Socket, DefaultSocket)
	cfg.Index = cmp.Or(cfg.Index, "90")
	cfg.Name = cmp.Or(cfg.Name, "waterline")
	cfg.Sys = cmp.Or(cfg.Sys, "/sys")
	return &Client{cfg: cfg, said: map[string]string{}}
}

// Stats returns what was counted so far.
func (c *Client) Stats() Stats {
	return Stats{
		Connected: c.connected.Load(), Connections: c.connections.Load(), Requests: c.requests.Load(),
		Slow: c.slow.Load(), Slowest: time.Duration(c.slowest.Load()),
	}
}

// Run connects to the runtime, and again whenever the connection is lost, until the context ends. A runtime that appears
// late or restarts is found within about a second, by its new socket.
func (c *Client) Run(ctx context.Context) {
	wait := firstWait
	for {
		tried := identify(c.cfg.Socket)
		s := newSession(c)
		err := s.run(ctx)
		c.connected.Store(false)
		if ctx.Err() != nil {
			return
		}
		c.report(AboutConnection, fmt.Errorf("new containers get their CPUs only once they run: %w", err))
		// One that is lost again and again must not be sought ten times a second for ever.
		if since := s.since.Load(); since != nil && time.Since(*since) >= settled {
			wait = firstWait
		}
		if c.sleep(ctx, tried, wait) {
			wait = firstWait
		} else {
			wait = min(2*wait, longWait)
		}
	}
}

// sleep waits for a time, or until there is another socket than the one that was tried, which it reports.
func (c *Client) sleep(ctx context.Context, tried identity, wait time.Duration) bool {
	for end := time.Now().Add(wait); ; {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(min(left, look)):
		}
		if now := identify(c.cfg.Socket); now != (identity{}) && now != tried {
			return true
		}
	}
}

// identity tells one socket from another at the same place.
type identity struct {
	device, inode uint64
	changed       int64 // inodes are used again
}

// identify returns the zero value if there is nothing.
func identify(path string) identity {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{stat.Dev, stat.Ino, stat.Ctim.Nano()}
}

// report passes on what was not said before.
func (c *Client) report(about string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said[about] == text {
		return
	}
	c.said[about] = text
	if c.cfg.Report != nil {
		c.cfg.Report(about, err)
	}
}

// count notes that an answer was given.
func (c *Client) count(took time.Duration) {
	c.requests.Add(1)
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
