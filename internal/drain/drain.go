// Package drain drains workers of engines that scale by whole workers only: they take no new work, finish what they
// have, and end.
//
// The folders beside this file speak to one engine each. A folder can be removed with its engine.
package drain

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"
)

// ErrCoordinator is what an error is, by [errors.Is], if the coordinator of the cluster does not say which workers it
// has: it does not answer, or refuses. Whether a worker is lost is not known then.
var ErrCoordinator = errors.New("nothing is known from the coordinator")

// State is where a worker is, by the account of its engine.
type State string

// The states of workers.
const (
	// Absent means that the coordinator does not know the worker: it has not registered yet, or has left.
	Absent State = "Absent"
	// Active means that the coordinator gives it work.
	Active State = "Active"
	// Draining means that it gets no new work, or will not from the end of its grace period on, and may still have some.
	Draining State = "Draining"
	// Drained means that it has no work any more, and that nobody waits for what it has. It can be ended at once, or has
	// ended already.
	Drained State = "Drained"
	// Lost means that it is gone with what somebody waits for, or without having been asked to drain. Only drainers of
	// servers that keep data have it.
	Lost State = "Lost"
)

// UnknownWork is [Status.Work] of a worker whose engine does not say it.
const UnknownWork = -1

// Status is what an engine says about a worker.
type Status struct {
	State State
	Work  int    // tasks, queries or shuffles that it still has; [UnknownWork]: nobody says
	Text  string // what the engine says besides, for people; may be empty
}

// Worker is a worker as its engine names it.
type Worker struct {
	// Host is the name or address under which it registered. Names are compared without regard to case.
	Host string
	// URL is the base address of its own web services, such as http://worker:8080. It may differ from Host.
	URL string
	// Asked means that its caller remembers having asked it to drain. Drainers of servers that keep data need it to tell a
	// drained worker that has gone from a lost one, if they were made after the drain began.
	Asked bool
}

// At returns the address of a path of the worker's own web services.
func (w *Worker) At(path string) string { return strings.TrimSuffix(w.URL, "/") + path }

// Silent reports whether an error of a [Client] means that nobody answered: the process may have ended, or the network
// may be at fault. An answer that is wrong or cut short is an answer.
func Silent(err error) bool {
	var u *url.Error
	var op *net.OpError
	if !errors.As(err, &u) || errors.Is(err, context.Canceled) {
		return false
	}
	return u.Timeout() || errors.As(err, &op) && (op.Op == "dial" || op.Op == "read" || op.Op == "write")
}

// Drainer drains the workers of one cluster of an engine. It is for concurrent use.
//
// These two methods are what all engines have. None can keep new work away without also ending the worker later, except
// those that are a [Reverser]. None ends at once what a worker runs: a deadline that has passed ends the pod.
type Drainer interface {
	// Drain makes a worker take no new work, finish what it has, and end, or wait for its end where the engine can take
	// the drain back. It returns when the engine has accepted that.
	// To call it again changes nothing, except that an earlier deadline counts.
	//
	// within is the time until whoever calls ends the worker. Engines that know deadlines end their work by themselves by
	// then.
	Drain(ctx context.Context, w Worker, within time.Duration) error
	// Status returns what the engine says about a worker. A worker that does not answer is an error, because it may
	// still work, or is what its coordinator says; one that its coordinator does not list is [Absent]. Of servers that
	// keep data, one that has gone by the account of its coordinator too is [Drained] or [Lost].
	Status(ctx context.Context, w Worker) (Status, error)
}

// Reverser is a Drainer whose drains can be taken back.
type Reverser interface {
	Drainer
	// Undrain gives a worker that drains work again. It is an error if the worker has ended.
	Undrain(ctx context.Context, w Worker) error
}
