// Package yarn reads the YARN cluster of a pool: its ResourceManager, the NodeManagers of its workers, and its exclude
// file. It decides nothing, also not what is worth a question.
package yarn

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// lookTimeout bounds how long a ResourceManager that accepts requests and does not answer delays a round, in which
	// workers may have to stop.
	lookTimeout = 5 * time.Second
	// activeTimeout is the part of it in which one of them must say that it is the active one.
	activeTimeout = 3 * time.Second
	// pendingTimeout bounds a look at the queues.
	pendingTimeout = 2 * time.Second
	// labelsInterval is the time between two looks at the store of labels if nobody asks for one.
	labelsInterval = 10 * time.Second
)

// Observer reads one cluster. The zero value has read nothing.
type Observer struct {
	Cluster *yarn.Cluster // nil: none can be reached
	labels  labels
	silent  map[string]silence   // by worker: NodeManagers that did not answer
	asked   map[string]time.Time // by worker: when its NodeManager was asked last; zero: not yet
}

// Use makes the observer read another cluster, or the same one by other clients.
func (o *Observer) Use(c *yarn.Cluster) { o.Cluster, o.labels = c, labels{} }

// labels are what was read of the store of labels.
type labels struct {
	all   []yarn.Label
	hosts map[string]string // by host:port or host:0
	read  time.Time
}

// Query says what to read.
type Query struct {
	Now     time.Time
	RM      bool                   // the ResourceManager is asked too
	Label   string                 // of the pool
	Labels  bool                   // the labels must be read now
	Hosts   func(host string) bool // whose NodeManagers are kept
	Exclude *yarn.ExcludeFile      // nil: there is none
}

// State is what was read.
type State struct {
	Known bool  // a ResourceManager answered as the active one; without it, only the hosts in the exclude file are known
	Err   error // why not
	Info  yarn.Info
	// Label says that the pool's label exists. StaleLabels means that labels were read by an earlier query.
	Label, StaleLabels bool
	Excluded           map[string]bool // hosts in the exclude file
	ExcludeErr         error           // why they are not known

	nodes map[string][]yarn.Node // by host
	hosts map[string]string      // label, by host:port or host:0
}

// Look reads the cluster.
func (o *Observer) Look(ctx context.Context, q Query) State {
	var s State
	if q.RM {
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		if err := o.askRM(looking, &q, &s); err != nil {
			s = State{Err: err} // a part of what it shows would look like a cluster that lost nodes
		}
		s.Known = s.Err == nil
	}
	if q.Exclude != nil {
		var content []byte
		if content, s.ExcludeErr = q.Exclude.Read(); s.ExcludeErr == nil {
			s.Excluded, s.ExcludeErr = q.Exclude.Hosts(content)
		}
	}
	return s
}

// askRM asks the ResourceManager for everything that is needed of some hosts.
func (o *Observer) askRM(ctx context.Context, q *Query, s *State) error {
	asking, cancel := context.WithTimeout(ctx, activeTimeout)
	defer cancel()
	var err error
	if s.Info, err = o.Cluster.RM.Active(asking); err != nil {
		return err
	}
	nodes, err := o.Cluster.RM.NodesOf(ctx, q.Hosts)
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	s.nodes = map[string][]yarn.Node{}
	for _, n := range nodes {
		host := strings.ToLower(n.HostOfID())
		s.nodes[host] = append(s.nodes[host], n)
	}
	s.StaleLabels = !q.Labels && q.Now.Sub(o.labels.read) < labelsInterval
	if !s.StaleLabels {
		if err := o.readLabels(ctx, q.Now); err != nil {
			return err
		}
	}
	s.hosts = o.labels.hosts
	s.Label = slices.ContainsFunc(o.labels.all, func(l yarn.Label) bool { return l.Name == q.Label })
	return nil
}

func (o *Observer) readLabels(ctx context.Context, now time.Time) error {
	all, err := o.Cluster.RM.Labels(ctx)
	if err != nil {
		return fmt.Errorf("listing node labels: %w", err)
	}
	hosts, err := o.Cluster.RM.NodeLabels(ctx)
	if err != nil {
		return fmt.Errorf("listing the labels of nodes: %w", err)
	}
	o.labels = labels{all, hosts, now}
	return nil
}

// Pending returns the sum of the containers that applications wait for: those that ask for the label, and if it is
// shared also those that ask for none, which land on its idle nodes.
func (o *Observer) Pending(ctx context.Context, label string, shared bool) (model.Size, error) {
	ctx, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	labels := []string{label}
	if shared {
		labels = append(labels, "")
	}
	return o.Cluster.RM.Pending(ctx, labels...)
}

// LabelOf returns the label that the store has for the first of these that it knows: host:port, or host:0 for all
// NodeManagers of a host.
func (s *State) LabelOf(nodes ...string) string {
	for _, id := range nodes {
		if label, found := s.hosts[id]; found {
			return label
		}
	}
	return ""
}

// Managers returns the NodeManagers on a host with a port, and whether what is shown of them is true: while the
// ResourceManager resizes one, it is not.
func (s *State) Managers(host, port string) (all []model.NodeManager, settled bool) {
	settled = true
	for _, n := range s.nodes[strings.ToLower(host)] {
		if _, its, err := net.SplitHostPort(n.ID); err == nil && its != port {
			continue // of somebody else, in the network of the node
		}
		settled = settled && (n.State != yarn.NodeRunning || n.Settled())
		all = append(all, Manager(n))
	}
	return all, settled
}

// Manager returns a NodeManager that a ResourceManager shows.
func Manager(n yarn.Node) model.NodeManager {
	m := model.NodeManager{
		ID: n.ID, State: string(n.State), Health: n.HealthReport,
		Total: n.Total, Used: n.Used, Containers: n.Containers, Listed: n.Containers,
		Opportunistic: n.Opportunistic,
	}
	if len(n.Labels) > 0 {
		m.Label = n.Labels[0]
	}
	return m
}
