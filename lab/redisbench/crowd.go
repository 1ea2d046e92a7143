package redisbench

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// Memcached is the program of an online service of many threads, which share locks.
const Memcached = "memcached"

const (
	crowdThreads = 8
	crowdRate    = 2000 // requests a second, for keys that do not exist
	crowdMilli   = 500  // CPU request of its pod
)

func crowdPod() pod {
	return pod{&sandbox.Pod{Name: Memcached, QoS: model.Burstable, RequestMilli: crowdMilli}, true}
}

// crowd is memcached, in a pod beside Redis.
type crowd struct {
	*sandbox.Process
	socket string
}

// startCrowd starts memcached in a pod.
func startCrowd(ctx context.Context, s *sandbox.Sandbox, p *sandbox.Pod) (c crowd, err error) {
	path, err := findProgram(Memcached)
	if err != nil {
		return c, err
	}
	c.socket = filepath.Join(s.Dir(), "memcached.sock")
	c.Process, err = s.Start(sandbox.Command{Name: Memcached, Group: s.ContainerGroup(p), Program: []string{
		path, "-u", "root", "-s", c.socket, "-t", strconv.Itoa(crowdThreads), "-m", "16",
	}})
	if err != nil {
		return c, err
	}
	s.AddLoad(p)
	return c, s.Poll(ctx, "for memcached to answer", func() (bool, error) {
		conn, err := net.Dial("unix", c.socket)
		var notYet *net.OpError
		switch {
		case errors.As(err, &notYet):
			return false, nil // if it has ended, the poll fails
		case err != nil:
			return false, err
		}
		return true, conn.Close()
	})
}

// crowdRequests returns the requests to memcached during a run.
func (r *run) crowdRequests() load.Requests {
	return load.Requests{
		Address: r.crowd.socket, Connections: 2 * crowdThreads, CPU: r.apart, Prioritize: true, Line: "get nothing",
		Rates: load.Rates{crowdRate}, Lead: r.cell.Lead, Length: time.Duration(r.seconds) * time.Second,
		Seed: uint64(r.cell.repeat) + 1,
	}
}

// countCrowd takes the latencies of memcached's requests that count, in milliseconds, sorted.
func (r *Run) countCrowd(all []load.Request) error {
	for _, a := range all {
		switch {
		case a.Due < r.Lead:
		case a.Ready == 0:
			return errors.New("memcached did not answer a request")
		default:
			r.Crowd = append(r.Crowd, measure.Millis(a.Latency()))
		}
	}
	slices.Sort(r.Crowd)
	return nil
}
