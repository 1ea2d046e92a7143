package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterline-io/waterline/internal/decide/cluster/yarncheck"
	"github.com/waterline-io/waterline/internal/yarn"
)

// yarnFacts reads what a check of a YARN cluster needs.
type yarnFacts struct {
	addresses   []string // of ResourceManagers
	user, label string
	// Who this command is with Kerberos, and files: the key, the configuration, and trusted authorities.
	principal, keytab, krb5, ca string
	floor                       yarncheck.Size
	spark, mapReduce, workers   map[string]string // nil: not asked about
}

// read reads all facts. What cannot be read is in the map Missing, with the reason.
func (y *yarnFacts) read(ctx context.Context) *yarncheck.Input {
	in := &yarncheck.Input{
		Label: y.label, Floor: y.floor, User: y.user, Spark: y.spark, MapReduce: y.mapReduce,
		Workers: y.workers,
		Missing: map[yarncheck.Fact]string{},
	}
	active := ""
	for _, address := range y.addresses {
		m := y.manager(ctx, address)
		if m.State == "ACTIVE" {
			active = address
		}
		in.Managers = append(in.Managers, m)
	}
	rm, err := y.client(active)
	if active == "" || err != nil {
		for _, fact := range []yarncheck.Fact{
			yarncheck.FactSettings, yarncheck.FactScheduler, yarncheck.FactQueues, yarncheck.FactLabels, yarncheck.FactNodes,
			yarncheck.FactHosts,
		} {
			in.Missing[fact] = "no ResourceManager is active"
		}
		return in
	}
	if in.Settings, err = rm.Settings(ctx); err != nil {
		in.Missing[yarncheck.FactSettings] = err.Error()
	}
	readScheduler(ctx, rm, in)
	if in.Labels, err = rm.Labels(ctx); err != nil {
		in.Missing[yarncheck.FactLabels] = err.Error()
	}
	readNodes(ctx, rm, in)
	return in
}

func (y *yarnFacts) manager(ctx context.Context, address string) yarncheck.Manager {
	m := yarncheck.Manager{Address: address}
	rm, err := y.client(address)
	if err == nil {
		var infos []yarn.Info
		if infos, err = rm.Infos(ctx); err == nil {
			m.State, m.Version = infos[0].HAState, infos[0].Version
		}
	}
	if err != nil {
		m.Problem = err.Error()
	} else if m.State == "" {
		m.Problem = "it does not say whether it is active"
	}
	return m
}

func readScheduler(ctx context.Context, rm *yarn.RM, in *yarncheck.Input) {
	root, err := rm.Scheduler(ctx)
	var other *yarn.OtherSchedulerError
	switch {
	case errors.As(err, &other):
		in.Scheduler.Kind = other.Kind
		in.Missing[yarncheck.FactQueues] = "the scheduler is " + other.Kind
	case err != nil:
		in.Missing[yarncheck.FactScheduler], in.Missing[yarncheck.FactQueues] = err.Error(), err.Error()
	default:
		in.Scheduler = yarncheck.Scheduler{Kind: "capacityScheduler", Root: root}
	}
}

func readNodes(ctx context.Context, rm *yarn.RM, in *yarncheck.Input) {
	nodes, err := rm.Nodes(ctx, yarn.NodeRunning, yarn.NodeUnhealthy, yarn.NodeDecommissioning)
	if err != nil {
		in.Missing[yarncheck.FactNodes], in.Missing[yarncheck.FactHosts] = err.Error(), err.Error()
		return
	}
	var names []string
	for _, n := range nodes {
		to := yarncheck.Node{Host: n.Host, Running: n.State == yarn.NodeRunning, Total: n.Total}
		if len(n.Labels) > 0 {
			to.Label = n.Labels[0]
		}
		in.Nodes = append(in.Nodes, to)
		names = append(names, n.Host)
	}
	slices.Sort(names)
	if in.Hosts, err = lookUp(ctx, slices.Compact(names)); err != nil {
		in.Missing[yarncheck.FactHosts] = err.Error()
	}
}

// lookUp resolves names, and back. It takes 20 s at most. An error says that name services did not answer; a name that
// does not exist is none.
func lookUp(ctx context.Context, names []string) ([]yarncheck.Host, error) {
	const atOnce, most = 16, 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	hosts := make([]yarncheck.Host, len(names))
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i, name := range names {
		all.Go(func() (err error) {
			hosts[i], err = lookUpHost(ctx, name)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, fmt.Errorf("looking up the hosts of NodeManagers: %w", err)
	}
	return hosts, nil
}

func lookUpHost(ctx context.Context, name string) (yarncheck.Host, error) {
	h := yarncheck.Host{Name: name}
	if _, err := netip.ParseAddr(name); err == nil {
		h.Addresses = []string{name}
		return h, nil
	}
	var unknown *net.DNSError
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil && !(errors.As(err, &unknown) && unknown.IsNotFound) {
		return h, err
	}
	h.Addresses = addresses
	for _, address := range addresses {
		// A server that knows nothing of private addresses answers with errors of many kinds.
		back, err := net.DefaultResolver.LookupAddr(ctx, address)
		if err != nil && ctx.Err() != nil {
			return h, err
		}
		for _, b := range back {
			h.Back = append(h.Back, strings.TrimSuffix(b, "."))
		}
	}
	return h, nil
}
