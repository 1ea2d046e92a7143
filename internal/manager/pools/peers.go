package pools

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// askWithin bounds the questions to all NodeManagers of a round. Many may be hung, and others have to stop meanwhile.
	askWithin = 2 * time.Second
	// askOne bounds the question to one of them.
	askOne = time.Second
	// silentFor is how long a NodeManager must not have answered to be reported.
	silentFor = 10 * time.Second
)

// peers are the addresses of NodeManagers by host. A URL has the name of a NodeManager, which its certificate and its
// Kerberos principal have too. The connection goes to the address of its pod, which needs no DNS, and which is the
// pod's own, whatever the name resolves to.
type peers struct {
	connect   func(ctx context.Context, network, address string) (net.Conn, error)
	mu        sync.Mutex
	addresses map[string]string
}

func (p *peers) set(host, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addresses[host] = address
}

// dial connects to the address of a host.
func (p *peers) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, fmt.Errorf("connecting to a NodeManager: %w", err)
	}
	p.mu.Lock()
	address, known := p.addresses[host]
	p.mu.Unlock()
	if !known {
		return nil, fmt.Errorf("connecting to %s: the address of its pod is not known", hostPort)
	}
	return p.connect(ctx, network, net.JoinHostPort(address, port))
}

// nodeManagers returns a client of NodeManagers. A connection is used once: the next pod of a host has another address.
func nodeManagers(
	auth yarn.Auth, base *http.Transport, connect func(ctx context.Context, network, address string) (net.Conn, error),
) (*yarn.NM, *peers, error) {
	p, transport := &peers{connect: connect, addresses: map[string]string{}}, base.Clone()
	transport.DialContext, transport.DisableKeepAlives, transport.Proxy = p.dial, true, nil
	nm, err := yarn.NewNM(yarn.HTTPOptions{
		Auth: auth, Transport: transport, Timeout: askOne, MaxAnswer: maxNMAnswer, MaxWhole: maxWhole,
	})
	return nm, p, err
}

// silence is since when a NodeManager did not answer, when it was asked last, and the error.
type silence struct {
	since, last time.Time
	err         error
}

// answers notes whether the NodeManager of a worker answered.
func (k *keeper) answers(worker string, now time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, was := k.silent[worker]
	switch {
	case err == nil:
		delete(k.silent, worker)
		return
	case !was:
		before.since = now
	}
	if k.silent == nil {
		k.silent = map[string]silence{}
	}
	k.silent[worker] = silence{before.since, now, err}
}

// askEach asks the NodeManagers of some places, a few at a time: first those that answered, then those that did not
// answer for the longest time. So hung ones, of which the time of a round is too short for all, do not keep others from
// being asked. ask is not called for those for which there was no time.
func (r *round) askEach(ctx context.Context, which []int, ask func(ctx context.Context, pl *place) error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	k := r.k
	last := func(i int) time.Time { return k.silent[r.places[i].worker.Name].last }
	which = pool.Rotate(which, last)
	inParallel(len(which), func(n int) {
		pl := &r.places[which[n]]
		if ctx.Err() != nil {
			return
		}
		k.engine.peers.set(pl.host, pl.pod.ip)
		k.answers(pl.worker.Name, r.now, ask(ctx, pl))
	})
}

// reportSilent reports NodeManagers that do not answer, and forgets workers that are gone.
func (r *round) reportSilent() {
	k := r.k
	there := map[string]bool{}
	for i := range r.places {
		if pl := &r.places[i]; pl.worker.Pod != nil {
			there[pl.worker.Name] = true
		}
	}
	for _, name := range sortedKeys(k.silent) {
		s := k.silent[name]
		switch {
		case !there[name] || r.now.Sub(s.last) > silentFor: // nobody asks it any more
			delete(k.silent, name)
		case s.last.Sub(s.since) >= silentFor:
			r.t.add(v1alpha1.ConditionNMUnreachable, "NoAnswer", fmt.Errorf("the NodeManager of worker %s does not say "+
				"which containers run, so its drain waits for their start; check its web port, and with https or Kerberos "+
				"the names and the Secret: %w", name, s.err))
		}
	}
}

// webOf returns the base address of the web services of a worker's NodeManager.
func (r *round) webOf(pl *place) string {
	port := webPort
	if r.scheme() == "https" {
		port = securePort
	}
	return r.scheme() + "://" + net.JoinHostPort(pl.host, strconv.Itoa(port))
}
