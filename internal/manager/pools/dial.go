package pools

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/waterline-io/waterline/internal/decide/cluster/reach"
)

// notAllowed is the reason of conditions if the administrator has not allowed an address or a file.
const notAllowed = "NotAllowed"

// notAllowedError says that the pools of a namespace may not reach a host.
type notAllowedError struct {
	namespace string
	host      string // "": any
}

// Error says what is not allowed, and which value of the chart allows it.
func (e *notAllowedError) Error() string {
	fix := "add its address to the chart's value manager.pools.allow." + e.namespace + ".addresses"
	if e.host == "" {
		return fmt.Sprintf("nobody has said which addresses the pools of namespace %s may reach, and where several "+
			"namespaces may have pools, somebody must; set the chart's value manager.pools.allow.%[1]s.addresses", e.namespace)
	}
	return fmt.Sprintf("pools of namespace %s may not reach %s there; %s", e.namespace, e.host, fix)
}

// dialer makes all connections of the pools of a namespace: to ResourceManagers, coordinators, KDCs and workers.
type dialer struct {
	namespace string
	scope     reach.Scope
}

// newDialer returns the dialer of a namespace; an error if its pools may reach nothing.
func newDialer(namespace string, scope reach.Scope) (*dialer, error) {
	if scope.Closed() {
		return nil, &notAllowedError{namespace: namespace}
	}
	return &dialer{namespace, scope}, nil
}

// dial connects to an address that a pool names.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return d.connect(ctx, network, address, host, func(to netip.AddrPort) bool { return d.scope.Allows(host, to) })
}

// dialWorker connects to the address of a worker's pod.
func (d *dialer) dialWorker(ctx context.Context, network, address string) (net.Conn, error) {
	return d.connect(ctx, network, address, "its worker", d.scope.AllowsWorker)
}

// crewDialer is the dialer of a pool whose client asks coordinator and workers alike.
type crewDialer struct {
	*dialer
	mu      sync.Mutex
	workers map[string]bool // addresses with ports
}

// know sets the addresses of the pool's workers.
func (d *crewDialer) know(workers map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.workers = workers
}

// dial connects to a worker, or to an address that the pool names.
func (d *crewDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	worker := d.workers[address]
	d.mu.Unlock()
	if worker {
		return d.dialWorker(ctx, network, address)
	}
	return d.dialer.dial(ctx, network, address)
}

// connect connects if the address to which a name was resolved is allowed. It looks at the address of the socket just
// before that connects: a name may resolve to something else a moment later.
func (d *dialer) connect(
	ctx context.Context, network, address, host string, allows func(to netip.AddrPort) bool,
) (net.Conn, error) {
	control := func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(resolved)
		if err == nil && !allows(to) {
			err = &notAllowedError{d.namespace, host}
		}
		return err
	}
	return (&net.Dialer{ControlContext: control}).DialContext(ctx, network, address)
}

// isNotAllowed reports whether an error is that an address is not allowed.
func isNotAllowed(err error) bool {
	var e *notAllowedError
	return errors.As(err, &e)
}
