package yarn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

const adminProtocol = "org.apache.hadoop.yarn.server.api.ResourceManagerAdministrationProtocolPB"

// AdminOptions say how to reach the administration protocol.
type AdminOptions struct {
	// Auth says who the caller is. yarn.admin.acl must name this user. With Kerberos, User is not used.
	Auth Auth
	// Timeout bounds one call, with its Kerberos tickets; 20 s if 0.
	Timeout time.Duration
	// Dial makes connections; that of [net.Dialer] if nil.
	Dial Dial
}

// Admin calls the ResourceManager's administration protocol, for operations that its web services lack: to decommission
// nodes, and to change many nodes in one call. It does not read changes back. Its methods may be called concurrently.
type Admin struct {
	rpc     *rpc
	servers servers
}

// NewAdmin returns a client of the ResourceManagers with these addresses, host:port, of the property
// yarn.resourcemanager.admin.address.
func NewAdmin(addresses []string, o AdminOptions) (*Admin, error) {
	if len(addresses) == 0 || o.Auth.User == "" && o.Auth.Kerberos == nil {
		return nil, errors.New("the administration protocol needs addresses, and a user or a Kerberos principal")
	}
	for _, a := range addresses {
		if err := checkNodeID(a); err != nil {
			return nil, fmt.Errorf("the address of the administration protocol is %q; it must be host:port", a)
		}
	}
	rpc, err := newRPC(adminProtocol, o)
	if err != nil {
		return nil, err
	}
	return &Admin{rpc: rpc, servers: servers{all: addresses, pause: pause}}, nil
}

// call calls a method of the active ResourceManager. It may send the request twice, so the method must be idempotent.
func (a *Admin) call(ctx context.Context, method string, message []byte) (answer []byte, err error) {
	err = a.servers.try(ctx, func(ctx context.Context, address string) error {
		answer, err = a.rpc.call(ctx, address, method, message)
		return err
	}, func(err error) bool {
		var exception *RPCError
		if !errors.As(err, &exception) {
			return loginFailed(err)
		}
		return !errors.Is(err, ErrStandby) && !strings.HasSuffix(exception.Class, saslException)
	})
	return answer, err
}

// The kinds of DecommissionTypeProto.
const (
	decommissionNormal   = 1
	decommissionGraceful = 2
)

// RefreshNodes makes the ResourceManager read its lists of included and excluded hosts again. It decommissions excluded
// hosts at once, which loses their containers, and takes back others. The states of nodes show the effect.
func (a *Admin) RefreshNodes(ctx context.Context) error {
	_, err := a.call(ctx, "refreshNodes", number64(nil, 1, decommissionNormal))
	return err
}

// ConfiguredTimeout is the ResourceManager's own setting
// (yarn.resourcemanager.nodemanager-graceful-decommission-timeout-secs), for [Admin.RefreshNodesGracefully].
const ConfiguredTimeout time.Duration = -1

// RefreshNodesGracefully makes the ResourceManager read its lists of included and excluded hosts again. A node of an
// excluded host gets no new containers from now on, and is decommissioned when its containers and their applications
// have ended, or after timeout, in whole seconds rounded up. A timeout beside the host in the list goes before. The
// states of nodes show the effect.
//
// The timeout is for all hosts without one in the list, also for those that are being decommissioned already. So with
// hosts of others in the list, it must be [ConfiguredTimeout]: any other one would be theirs from then on, and 0 would
// end their containers.
//
// Containers that are allocated and have not started do not count. Hadoop 3.5.0 was seen to decommission a node that
// had only such ones within 0.2 s, and so to kill them. To lose none, first stop allocation by [RM.SendResize] to what
// is used, and wait until [NM.Containers] has as many as the ResourceManager.
//
// The ResourceManager does not store timeouts: one that starts again decommissions excluded hosts at once.
func (a *Admin) RefreshNodesGracefully(ctx context.Context, timeout time.Duration) error {
	message := number64(nil, 1, decommissionGraceful)
	if timeout != ConfiguredTimeout {
		seconds := int64((min(timeout, math.MaxInt64-time.Second) + time.Second - 1) / time.Second)
		if timeout < 0 || seconds > math.MaxInt32 {
			return fmt.Errorf("decommissioning gracefully: the timeout is %v; it must be from 0 to %v", timeout,
				math.MaxInt32*time.Second)
		}
		message = number64(message, 2, uint64(seconds))
	}
	_, err := a.call(ctx, "refreshNodes", message)
	return err
}

// NodeResize is a new total of a node, by host:port, as in [RM.SendResize].
type NodeResize struct {
	ID         string
	Total      Resource
	OverCommit time.Duration
}

// SendResizes asks for new totals in one call, all or none: a node that the ResourceManager does not know is an error,
// and then none has changed. It does not read back, as [RM.SendResize].
func (a *Admin) SendResizes(ctx context.Context, all []NodeResize) error {
	var message []byte
	for _, n := range all {
		ms, err := checkResize(n.ID, n.Total, n.OverCommit)
		if err != nil {
			return err
		}
		option := number64(embedded(nil, 1, resourceMessage(n.Total)), 2, uint64(ms))
		message = embedded(message, 1, embedded(embedded(nil, 1, nodeMessage(n.ID)), 2, option))
	}
	if len(all) == 0 {
		return nil
	}
	_, err := a.call(ctx, "updateNodeResource", message)
	return err
}

// nodeMessage returns a NodeIdProto. The id must be valid.
func nodeMessage(id string) []byte {
	host, port, _ := net.SplitHostPort(id)
	n, _ := strconv.ParseUint(port, 10, 16)
	return number64(text(nil, 1, host), 2, n)
}

// resourceMessage returns a ResourceProto: memory and vcores, and both again as in the list of all resources, because
// Hadoop's own client writes both.
func resourceMessage(r Resource) []byte {
	entry := func(name, units string, value int64) []byte {
		b := number64(text(nil, 1, name), 2, uint64(value))
		return number64(text(b, 3, units), 4, 0) // COUNTABLE
	}
	b := number64(number64(nil, 1, uint64(r.MemoryMiB)), 2, uint64(r.VCores))
	b = embedded(b, 3, entry("memory-mb", "Mi", r.MemoryMiB))
	return embedded(b, 3, entry("vcores", "", r.VCores))
}
