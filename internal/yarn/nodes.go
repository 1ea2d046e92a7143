package yarn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// NodeState is the state of a NodeManager in the ResourceManager.
type NodeState string

// The states of a NodeManager.
const (
	NodeNew             NodeState = "NEW"
	NodeRunning         NodeState = "RUNNING"
	NodeUnhealthy       NodeState = "UNHEALTHY"
	NodeDecommissioning NodeState = "DECOMMISSIONING"
	NodeDecommissioned  NodeState = "DECOMMISSIONED"
	NodeLost            NodeState = "LOST"
	NodeRebooted        NodeState = "REBOOTED"
	NodeShutdown        NodeState = "SHUTDOWN"
)

// Node is a NodeManager as the ResourceManager sees it.
type Node struct {
	ID            string // host:port
	Host          string
	State         NodeState
	Version       string
	HealthReport  string
	Containers    int
	Opportunistic int // containers that run without a right to their resources, or wait in the NodeManager's queue
	Total         Resource
	Used          Resource
	Available     Resource // negative while overcommitted
	Labels        []string // none: the default partition
}

// Settled reports whether Used, Available and Containers are true. Just after a resize, the ResourceManager was seen to
// answer with the new total and zeros, as if nothing ran. It also does so for nodes that are not active.
func (n Node) Settled() bool {
	return n.Used.MemoryMiB+n.Available.MemoryMiB == n.Total.MemoryMiB &&
		n.Used.VCores+n.Available.VCores == n.Total.VCores
}

type nodeJSON struct {
	ID           string        `json:"id"`
	Host         string        `json:"nodeHostName"`
	State        NodeState     `json:"state"`
	Version      string        `json:"version"`
	HealthReport string        `json:"healthReport"`
	Containers   number        `json:"numContainers"`
	Opport       number        `json:"numRunningOpportContainers"`
	Queued       number        `json:"numQueuedContainers"`
	UsedMemory   number        `json:"usedMemoryMB"`
	FreeMemory   number        `json:"availMemoryMB"`
	UsedVCores   number        `json:"usedVirtualCores"`
	FreeVCores   number        `json:"availableVirtualCores"`
	Labels       list[string]  `json:"nodeLabels"`
	Total        *resourceJSON `json:"totalResource"` // releases before 3.1 leave it out
}

func (j nodeJSON) node() (Node, error) {
	if j.ID == "" {
		return Node{}, errors.New("the ResourceManager lists a node without an id")
	}
	n := Node{
		ID: j.ID, Host: j.Host, State: j.State, Version: j.Version, HealthReport: cut(j.HealthReport),
		Containers: int(j.Containers), Opportunistic: int(j.Opport + j.Queued),
		Used:      Resource{MemoryMiB: int64(j.UsedMemory), VCores: int64(j.UsedVCores)},
		Available: Resource{MemoryMiB: int64(j.FreeMemory), VCores: int64(j.FreeVCores)},
		Labels:    j.Labels,
	}
	n.Total = Resource{MemoryMiB: n.Used.MemoryMiB + n.Available.MemoryMiB, VCores: n.Used.VCores + n.Available.VCores}
	if j.Total != nil {
		n.Total = j.Total.resource()
	}
	return n, nil
}

// Nodes returns the nodes in these states, or all that the ResourceManager remembers if none is given. More than 50,000
// are an error.
func (c *RM) Nodes(ctx context.Context, states ...NodeState) ([]Node, error) {
	return c.NodesOf(ctx, func(string) bool { return true }, states...)
}

// NodesOf returns the nodes of some hosts. Others take no memory.
func (c *RM) NodesOf(ctx context.Context, keep func(host string) bool, states ...NodeState) ([]Node, error) {
	var nodes []Node
	all := listing{path: []string{"nodes", "node"}, most: maxNodes}
	err := c.list(ctx, "/nodes", inStates(states), all, func() { nodes = nil },
		func(decode func(any) error) error {
			var j nodeJSON
			if err := decode(&j); err != nil {
				return err
			}
			n, err := j.node()
			if err == nil && keep(n.HostOfID()) {
				nodes = append(nodes, n)
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	return nodes, nil
}

// HostOfID returns the host of the node's id.
func (n *Node) HostOfID() string {
	if host, _, err := net.SplitHostPort(n.ID); err == nil {
		return host
	}
	return n.Host
}

// Node returns the node with an id, host:port. The error is [ErrNotFound] if the ResourceManager does not know it.
func (c *RM) Node(ctx context.Context, id string) (Node, error) {
	var answer struct {
		Node nodeJSON `json:"node"`
	}
	if err := c.Do(ctx, http.MethodGet, "/nodes/"+url.PathEscape(id), nil, &answer); err != nil {
		return Node{}, err
	}
	return answer.Node.node()
}

type resizeJSON struct {
	Resource struct {
		Memory int64 `json:"memory"`
		VCores int64 `json:"vCores"`
	} `json:"resource"`
	Timeout int64 `json:"overCommitTimeout"` // in ms
}

// SendResize gives a node, host:port, a new total. New containers fit into it at once. If those that run do not, the
// ResourceManager tells their applications which it will kill, and kills them, newest first and masters last, when
// overCommit has passed; at once if overCommit is 0. A node that has that total already stays as it is: the
// ResourceManager ignores the request and its deadline.
//
// SendResize returns without reading the total back. The caller has to compare the total that a list of nodes shows
// later, because a ResourceManager can accept a change and do nothing.
//
// The ResourceManager stores neither the total nor the deadline. After it has started again, it kills nothing, and
// learns the total from the NodeManager, which knows it from its next heartbeat on ([NM.Info]). After a NodeManager has
// started again, its own configuration sets the total. A total below the scheduler's minimum allocation is accepted
// here, but the ResourceManager shuts down a NodeManager that registers with it.
func (c *RM) SendResize(ctx context.Context, id string, total Resource, overCommit time.Duration) error {
	var send resizeJSON
	var err error
	if send.Timeout, err = checkResize(id, total, overCommit); err != nil {
		return err
	}
	send.Resource.Memory, send.Resource.VCores = total.MemoryMiB, total.VCores
	return c.Do(ctx, http.MethodPost, "/nodes/"+url.PathEscape(id)+"/resource", send, nil)
}

// checkResize returns the overcommit timeout in ms, or an error if the request can do harm.
func checkResize(id string, total Resource, overCommit time.Duration) (int64, error) {
	// Less than a millisecond must not become 0, which kills at once.
	ms := int64((min(overCommit, math.MaxInt64-time.Millisecond) + time.Millisecond - 1) / time.Millisecond)
	switch {
	case overCommit < 0 || ms > math.MaxInt32:
		return 0, fmt.Errorf("resizing %s: the overcommit timeout is %v; it must be from 0 to %v, because a negative "+
			"one does not clear the deadline of an earlier resize", id, overCommit, math.MaxInt32*time.Millisecond)
	case total.MemoryMiB < 0 || total.VCores < 0 || total.VCores > math.MaxInt32:
		return 0, fmt.Errorf("resizing %s to %v: the total must not be negative, and vcores not above %d", id, total,
			math.MaxInt32)
	}
	return ms, checkNodeID(id)
}

// checkNodeID returns an error unless id is host:port.
func checkNodeID(id string) error {
	host, port, err := net.SplitHostPort(id)
	if err == nil && host != "" {
		if _, err = strconv.ParseUint(port, 10, 16); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the id of a node is %q; it must be host:port, as in the ResourceManager's list of nodes", id)
}
