package yarn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	rounds = 3 // how often all ResourceManagers are tried
	// pause is before the second round. Failover takes seconds: the caller has to come again.
	pause = 200 * time.Millisecond
	// readBack is how long a change may take to show. The ResourceManager changes a node in a later event, which was seen
	// to take longer than its answer, and never a second.
	readBack = 5 * time.Second
)

// RM is a client of the web services of a ResourceManager, or of several, one of which is active. Its methods may be
// called concurrently.
type RM struct {
	web
	servers  servers
	readBack time.Duration
}

// NewRM returns a client of the ResourceManagers with these base addresses, such as http://rm1.example:8088.
func NewRM(addresses []string, o HTTPOptions) (*RM, error) { return newRM(addresses, o, newWeb) }

// NewSimpleRM returns a client of ResourceManagers that never logs in, for programs that are to take little memory.
func NewSimpleRM(addresses []string, o HTTPOptions) (*RM, error) {
	return newRM(addresses, o, simpleWeb)
}

func newRM(addresses []string, o HTTPOptions, open func(HTTPOptions) (web, error)) (*RM, error) {
	if len(addresses) == 0 {
		return nil, errors.New("no address of a ResourceManager is given")
	}
	for _, a := range addresses {
		u, err := url.Parse(a)
		if err != nil {
			return nil, fmt.Errorf("the address of a ResourceManager: %w", err)
		}
		if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
			return nil, fmt.Errorf("the address of a ResourceManager is %q; it must be like http://rm1.example:8088", a)
		}
	}
	web, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("making a client of ResourceManagers: %w", err)
	}
	return &RM{web: web, servers: servers{all: addresses, pause: pause}, readBack: readBack}, nil
}

// servers are the addresses of ResourceManagers, one of which is active.
type servers struct {
	all  []string
	last atomic.Int32 // index of the one that was active last
	// pause is the time before the second round; it doubles.
	pause time.Duration
}

// try calls a function with each address, first that which was active last, until it succeeds or its error is final. It
// does so in a few rounds. One that accepts connections and never answers must not use up the time of the others: of
// the time that is left, each has an equal part.
func (s *servers) try(
	ctx context.Context, call func(ctx context.Context, address string) error, final func(error) bool,
) error {
	wait := s.pause
	for round := 1; ; round++ {
		all := []error{ErrNoActive}
		first := int(s.last.Load())
		for i := range s.all {
			n := (first + i) % len(s.all)
			err := within(ctx, len(s.all)-i, func(ctx context.Context) error { return call(ctx, s.all[n]) })
			if err == nil || final(err) {
				s.last.Store(int32(n))
				return err
			}
			all = append(all, err)
		}
		if round == rounds || ctx.Err() != nil {
			return errors.Join(all...)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(all...)
		}
		wait *= 2
	}
}

// within calls a function with one of so many parts of the time that is left.
func within(ctx context.Context, parts int, call func(context.Context) error) error {
	if end, bounded := ctx.Deadline(); bounded && parts > 1 {
		part, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(parts))
		defer cancel()
		ctx = part
	}
	return call(ctx)
}

// list calls each with the elements of a list of the active ResourceManager. begin is called before each attempt.
func (c *RM) list(
	ctx context.Context, path string, query url.Values, l listing, begin func(),
	each func(decode func(into any) error) error,
) error {
	r := request{method: http.MethodGet, path: "/ws/v1/cluster" + path, query: query}
	return c.servers.try(ctx, func(ctx context.Context, base string) error {
		begin()
		return c.web.list(ctx, base, r, l, each)
	}, final)
}

// inStates returns the query for objects in these states; without any, for all objects.
func inStates[S ~string](states []S) url.Values {
	query := url.Values{}
	if len(states) > 0 {
		names := make([]string, len(states))
		for i, s := range states {
			names[i] = string(s)
		}
		query.Set("states", strings.Join(names, ","))
	}
	return query
}

// Do sends a request to the active ResourceManager, to a path below /ws/v1/cluster. The body is written as JSON, if it
// is not nil, and the answer decoded into into, if that is not nil. It may send the request twice, so the request must
// be idempotent.
func (c *RM) Do(ctx context.Context, method, path string, body, into any) error {
	r := request{method: method, path: "/ws/v1/cluster" + path, body: body}
	return c.servers.try(ctx, func(ctx context.Context, base string) error { return c.do(ctx, base, r, into) }, final)
}

// until reads until done reports true or the time for reading back is over; then it returns what missing returns.
func (c *RM) until(ctx context.Context, done func() (bool, error), missing func() *NoEffectError) error {
	deadline := time.Now().Add(c.readBack)
	for {
		ok, err := done()
		if err != nil {
			return fmt.Errorf("reading back: %w", err)
		}
		if ok {
			return nil
		}
		if !time.Now().Before(deadline) {
			return missing()
		}
		select {
		case <-time.After(c.readBack / 50):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("reading back: %w", ctx.Err()), missing())
		}
	}
}

// Info describes a ResourceManager.
type Info struct {
	Address string // the base address that was asked
	State   string // of the service; STARTED when it works
	HAState string // ACTIVE, STANDBY, INITIALIZING or STOPPING
	Version string
	Started time.Time
}

func (c *RM) info(ctx context.Context, base string) (Info, error) {
	var answer struct {
		Info struct {
			State   string `json:"state"`
			HAState string `json:"haState"`
			Version string `json:"resourceManagerVersion"`
			Started number `json:"startedOn"`
		} `json:"clusterInfo"`
	}
	if err := c.do(ctx, base, request{method: http.MethodGet, path: "/ws/v1/cluster/info"}, &answer); err != nil {
		return Info{}, err
	}
	i := answer.Info
	return Info{base, i.State, i.HAState, i.Version, i.Started.time()}, nil
}

// Infos describes each ResourceManager, active or not, in the order of their addresses. The error says why others do
// not answer.
func (c *RM) Infos(ctx context.Context) ([]Info, error) {
	infos, failed := make([]Info, len(c.servers.all)), make([]error, len(c.servers.all))
	var asks sync.WaitGroup
	for n, base := range c.servers.all {
		asks.Go(func() { infos[n], failed[n] = c.info(ctx, base) })
	}
	asks.Wait()
	return slices.DeleteFunc(infos, func(i Info) bool { return i.Address == "" }), errors.Join(failed...)
}

// Active returns the description of the active ResourceManager, and sends the next request there first. It does not
// wait for others.
func (c *RM) Active(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the questions that are still open
	type described struct {
		n    int // of its address
		info Info
		err  error
	}
	answers := make(chan described, len(c.servers.all))
	for n, base := range c.servers.all {
		go func() {
			info, err := c.info(ctx, base)
			answers <- described{n, info, err}
		}()
	}
	others := make([]error, len(c.servers.all))
	for range c.servers.all {
		d := <-answers
		switch err := d.err; {
		case err != nil:
			others[d.n] = err
		case d.info.HAState == "ACTIVE":
			c.servers.last.Store(int32(d.n))
			return d.info, nil
		case d.info.HAState == "STANDBY":
			others[d.n] = fmt.Errorf("%w: %s is %q", ErrStandby, d.info.Address, d.info.HAState)
		default:
			others[d.n] = fmt.Errorf("%s is %q", d.info.Address, d.info.HAState)
		}
	}
	return Info{}, errors.Join(append([]error{ErrNoActive}, others...)...)
}
