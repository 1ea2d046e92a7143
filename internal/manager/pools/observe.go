package pools

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	observeyarn "github.com/waterline-io/waterline/internal/observe/yarn"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	registerWithin = 3 * time.Minute
	recoverWithin  = 10 * time.Minute
	attempts       = 2
	// effectWithin is for how long a worker is left alone whose numbers are not true yet. It was never seen to take a
	// second.
	effectWithin = 10 * time.Second
)

// Settings returns the settings of a pool of YARN for the decision, without graceful decommissions.
func Settings(p *kube.WorkerPool, label string) pool.Settings {
	amount := func(a model.Amount) pool.Size {
		return pool.Size{MemoryMiB: yarn.MiB(a.Memory), VCores: yarn.VCores(a.CPU, p.VCoresPerCPU)}
	}
	return pool.Settings{
		Label: label,
		Floor: amount(p.Floor), Ceiling: amount(p.Ceiling), Step: amount(p.Step),
		Pause: p.Pause, Window: p.Window, Core: max(yarn.VCores(1000, p.VCoresPerCPU), 1),
		Grace: p.Grace, Drain: p.Drain, CoolDown: p.CoolDown,
		Register: registerWithin, Recover: recoverWithin, Attempts: attempts,
	}
}

// settings returns the pool's settings for the decision.
func (r *round) settings() pool.Settings {
	s := Settings(&r.read, r.p.Spec.YARN.Label.Name)
	s.Graceful, s.Invalid = r.graceful(), r.invalid
	return s
}

// graceful reports whether workers can be decommissioned gracefully.
func (r *round) graceful() bool {
	file, _, _ := r.excludeFile()
	return file != nil
}

// observe builds the input of the decision.
func (r *round) observe(ctx context.Context) {
	k := r.k
	if r.p.DeletionTimestamp == nil {
		r.opening = pool.Opening(policy.OpeningAt(r.read.Windows, r.now))
	}
	r.look(ctx)
	r.in = pool.Input{Now: r.now, Settings: r.settings(), RM: pool.RM{
		Known: r.state.Known, Labels: r.state.Label, StaleLabels: r.state.StaleLabels,
	}}
	if r.p.DeletionTimestamp != nil {
		r.in.Deleted = r.p.DeletionTimestamp.Time
	}
	if s := k.status.ResourceManager; s != nil {
		r.in.RM.Since = s.Since.Time
	}
	r.list()
	r.watch()
	on := k.c.workersOn()
	r.recall()
	for _, pl := range r.places {
		r.fill(pl, on)
	}
	r.ask(ctx)
	// A worker whose numbers are not true yet is left alone, but not for long: it may have to stop.
	r.unsettled = map[string]bool{}
	since := map[string]time.Time{}
	r.places = slices.DeleteFunc(r.places, func(pl *place) bool {
		if pl.settled {
			return false
		}
		name := pl.worker.Name
		if since[name] = r.now; !k.unsettled[name].IsZero() {
			since[name] = k.unsettled[name]
		}
		r.unsettled[name] = r.now.Sub(since[name]) < effectWithin
		return r.unsettled[name]
	})
	k.unsettled = since
	r.in.Workers = make([]pool.Worker, len(r.places))
	for i, pl := range r.places {
		r.in.Workers[i], pl.worker = *pl.worker, &r.in.Workers[i]
		if !r.state.Known {
			continue
		}
		var total *pool.Size
		if m, _ := pl.worker.Manager(); m != nil {
			total = &m.Total
		}
		r.t.add(v1alpha1.ConditionStepsFailed, "StepFailed", k.actor.Check(r.now, pl.worker.Name, total))
	}
	r.followDemand(ctx)
	r.reportBarred()
}

// look reads the cluster, and notes which ResourceManager is active.
func (r *round) look(ctx context.Context) {
	k := r.k
	file, reason, why := r.excludeFile()
	r.t.add(v1alpha1.ConditionExcludeFailed, reason, why)
	r.state = k.observer.Look(ctx, observeyarn.Query{
		Now: r.now, RM: r.connect(ctx), Label: r.p.Spec.YARN.Label.Name, Labels: k.readLabels, Hosts: r.ours,
		Exclude: file,
	})
	r.t.add(v1alpha1.ConditionExcludeFailed, "Unreadable", r.state.ExcludeErr)
	if r.state.Err != nil {
		r.unreachable(r.state.Err)
	}
	if !r.state.Known {
		return
	}
	if file != nil && r.state.ExcludeErr == nil {
		r.t.add(v1alpha1.ConditionExcludeFailed, "NotRead", k.actor.ReadOnce(ctx, r.now))
	}
	k.status.ResourceManager = r.active(k.status.ResourceManager)
}

// active returns the active ResourceManager for the status. was is that of the round before; nil: none was known.
func (r *round) active(was *v1alpha1.ResourceManagerStatus) *v1alpha1.ResourceManagerStatus {
	info := &r.state.Info
	now := &v1alpha1.ResourceManagerStatus{
		Address: info.Address, Version: kube.Shorten(info.Version, maxVersion), Started: second(info.Started),
		Since: second(r.now),
	}
	if was != nil && was.Address == now.Address && was.Started.Equal(&now.Started) {
		now.Since = was.Since
	}
	return now
}

const (
	// secretInterval is how long a Secret counts after it was read. After a failure it is read again sooner.
	secretInterval, secretRetry = 2 * time.Minute, 10 * time.Second
	// secretTimeout bounds one reading, for which the round waits.
	secretTimeout = 2 * time.Second
)

// secretOf returns the content of the Secret that the field authSecret of an engine names; nil if it names none. While
// the API server does not say whether it changed, it is as it was.
func (r *round) secretOf(ctx context.Context, field, name string) (map[string][]byte, error) {
	k := r.k
	switch {
	case name == "":
		return nil, nil
	case k.secretName == name && r.now.Sub(k.secretRead) < secretInterval:
		return k.secret, nil
	}
	var s corev1.Secret
	err := k.c.o.Core.Get().Namespace(k.namespace).Resource("secrets").Name(name).Timeout(secretTimeout).Do(ctx).Into(&s)
	const stale = "the Secret of a pool could not be read again, so its last content is used"
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && k.secretName == name {
		k.logOnce(ctx, stale, err)
		k.secretRead = r.now.Add(secretRetry - secretInterval)
		return k.secret, nil
	}
	k.logOnce(ctx, stale, nil)
	if err != nil {
		k.secret, k.secretName = nil, ""
	}
	if err != nil && field != "spec.yarn" {
		return nil, fmt.Errorf("%s.authSecret: reading Secret %s: %w", field, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("spec.yarn.authSecret: reading Secret %s, which needs the keys %s, %s and %s for "+
			"Kerberos, or %s for https: %w", name, yarn.KeyPrincipal, yarn.KeyKeytab, yarn.KeyKrb5, yarn.KeyCA, err)
	}
	if s.Data == nil {
		s.Data = map[string][]byte{} // it is empty, and there
	}
	k.secret, k.secretName, k.secretRead = s.Data, name, r.now
	return k.secret, nil
}

// excludeFile returns the exclude file; nil if there is none that the pool may use, and why it may not use that which
// its spec names.
func (r *round) excludeFile() (file *yarn.ExcludeFile, reason string, why error) {
	name, o := r.p.Spec.YARN.ExcludeFile, &r.k.c.o
	scope := o.Reach[r.k.namespace]
	switch {
	case name == "":
		return nil, "", nil
	case o.ExcludeDir == "":
		return nil, "NoDirectory", errors.New("spec.yarn.excludeFile is set, and the manager has no directory of exclude " +
			"files, so workers are not decommissioned gracefully; set the chart's value manager.pools.excludeVolume, or " +
			"leave excludeFile out")
	case !scope.AllowsFile(name):
		return nil, notAllowed, fmt.Errorf("pools of namespace %s may not use the exclude file %s, so workers are not "+
			"decommissioned gracefully; add it to the chart's value manager.pools.allow.%[1]s.excludeFiles, or leave "+
			"excludeFile out", r.k.namespace, name)
	}
	return &yarn.ExcludeFile{Dir: o.ExcludeDir, Name: name}, "", nil
}

// list lists the workers: those of the pool, and those that are one too many and have not left yet.
func (r *round) list() {
	pods, there := map[string]*podRow{}, map[string]bool{}
	r.k.c.pods[r.k.namespace].Each(func(_ string, p podRow) {
		if p.owner == r.p.UID {
			pods[p.name], there[p.uid] = &p, true
		}
	})
	maps.DeleteFunc(r.k.counted, func(uid string, _ bool) bool { return !there[uid] })
	maps.DeleteFunc(r.k.starts, func(uid string, _ start) bool { return !there[uid] })
	add := func(name, node string, index int) {
		pl := &place{worker: &pool.Worker{Name: name}, node: node, index: index, pod: pods[name]}
		delete(pods, name)
		if pl.pod != nil && pl.pod.node != "" {
			pl.node = pl.pod.node
		}
		r.places = append(r.places, pl)
	}
	if r.p.Spec.Replicas != nil {
		for i := range int(*r.p.Spec.Replicas) {
			add(r.p.Name+"-"+strconv.Itoa(i), "", i)
		}
	} else {
		for i, node := range r.selected() {
			add(workerName(r.p.Name, node), node, i)
		}
	}
	listed := map[string]bool{}
	for _, pl := range r.places {
		listed[pl.worker.Name] = true
	}
	for _, name := range sortedKeys(pods) {
		listed[name] = true
		add(name, "", -1)
	}
	for _, w := range r.k.status.Workers {
		// Without a pod, its host may still be in the exclude file.
		if !listed[w.Name] && (pool.Phase(w.Phase) != pool.Terminated || r.state.Excluded[r.host(w.Name, w.Node)]) {
			add(w.Name, w.Node, -1)
		}
	}
}

// recall fills in what the previous round recorded of each worker.
func (r *round) recall() {
	r.before = make(map[string]*v1alpha1.WorkerStatus, len(r.k.status.Workers))
	for i := range r.k.status.Workers {
		w := &r.k.status.Workers[i]
		r.before[w.Name] = w
	}
	for _, pl := range r.places {
		if row := r.before[pl.worker.Name]; row != nil {
			pl.row = *row
		}
	}
}

// selected returns the nodes that have a worker each, ordered by name.
func (r *round) selected() []string {
	var all []string
	for name, n := range r.nodes {
		if r.read.Nodes.Matches(n.Labels) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// workerName returns the name of the worker of a node: a DNS label of at most 63 characters. Different nodes have
// different names.
func workerName(pool, node string) string {
	clean := strings.ReplaceAll(node, ".", "-")
	name := pool + "-" + clean
	if clean == node && len(name) <= 63 {
		return name
	}
	sum := fnv.New32a()
	fmt.Fprint(sum, node)
	most := 63 - len(pool) - len("--00000000")
	return fmt.Sprintf("%s-%s-%08x", pool, strings.Trim(clean[:min(len(clean), most)], "-"), sum.Sum32())
}

// hostNetwork reports whether workers use the networks of their nodes.
func (r *round) hostNetwork() bool { return r.p.Spec.Template.Spec.HostNetwork }

// host returns the name under which a worker's NodeManager registers.
func (r *round) host(worker, node string) string {
	if r.hostNetwork() {
		return node
	}
	return strings.Join([]string{worker, r.p.Name, r.p.Namespace, "svc", r.k.c.o.ClusterDomain}, ".")
}

// ours reports whether a host may be that of a worker of the pool.
func (r *round) ours(host string) bool {
	if r.hostNetwork() {
		host = strings.ToLower(host)
		_, known := r.nodes[host]
		return known || slices.ContainsFunc(r.k.status.Workers, func(w v1alpha1.WorkerStatus) bool { return w.Node == host })
	}
	return strings.HasSuffix(strings.ToLower(host), strings.ToLower(r.host("", "")))
}

// fill adds what was observed of a worker, besides its NodeManagers.
func (r *round) fill(pl *place, on map[string]int) {
	w := pl.worker
	pl.host = r.host(w.Name, pl.node)
	pl.labelled = net.JoinHostPort(pl.host, "0")
	if r.hostNetwork() {
		pl.labelled = net.JoinHostPort(pl.host, strconv.Itoa(hadoop.Port))
	}
	if pl.index >= 0 {
		w.Wanted, w.End = pool.Schedule(r.now, r.opening, pool.Ramp{Waves: r.read.Waves, Interval: r.read.WaveInterval},
			pl.index, len(r.places))
	}
	n, known := r.nodes[pl.node]
	w.Cordoned = known && n.Closed(r.tolerations())
	w.Room = r.p.Spec.Replicas != nil || n.Room(r.read.Floor.Plus(r.read.Overhead).Plus(r.read.Beside))
	w.Unsold, w.Sells = pl.pod == nil && !r.sold(), n.Selling
	_, why := r.bar()
	w.Barred = why != nil
	floor, ceiling := r.in.Settings.Floor, pool.Size{}
	if pl.pod != nil {
		if own, most := r.bounds(pl.pod); own != (pool.Size{}) {
			floor, ceiling = own, most
		}
	}
	w.Figures = r.figures(pl.node, on[pl.node], floor)
	w.Allowance = w.Figures.Now
	w.Heard = r.k.actor.Heard(w.Name)
	w.Over = pl.pod != nil && pl.pod.over
	w.Excluded = r.state.Excluded[pl.host] || r.k.actor.Unread(pl.host)
	if pl.row.Ended != nil {
		w.Ended = pl.row.Ended.Time
	}
	switch phase := pool.Phase(pl.row.Phase); {
	case r.p.Generation == r.k.status.ObservedGeneration:
		w.Attempts = pool.Failures(int(pl.row.Attempts), w.Ended, r.opening)
		if phase == pool.Active || phase == pool.Shrinking {
			delete(r.k.givenUp, w.Name)
		}
	case phase == pool.Quarantined:
		if r.k.givenUp == nil {
			r.k.givenUp = map[string]bool{}
		}
		r.k.givenUp[w.Name] = true
	}
	w.GivenUp = r.k.givenUp[w.Name]
	port := strconv.Itoa(hadoop.Port)
	w.Label = r.state.LabelOf(pl.labelled, net.JoinHostPort(pl.host, port), net.JoinHostPort(pl.host, "0"))
	w.Managers, pl.settled = r.state.Managers(pl.host, port)
	switch p := pl.pod; {
	case p != nil && !p.over:
		w.Pod = &pool.Pod{
			Created: p.created, Started: r.startOf(p), Deleting: p.deleting || w.Cordoned,
			Evicted: known && n.Evict == p.uid, Marks: p.marks,
			Outdated: p.template != "" && p.template != r.template(),
		}
		if ceiling != (pool.Size{}) {
			w.Pod.Floor, w.Pod.Ceiling = floor, ceiling
		}
	case p != nil:
		w.Ended = p.ended
	case pl.row.Pod != "": // it is gone since the last round
		w.Ended = r.now
	}
}

// sold reports whether a policy sells resources that a worker's pod can request.
func (r *round) sold() bool {
	_, sold := r.k.c.o.Batch(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{v1alpha1.LabelQoS: string(model.ClassBE)},
	}})
	return sold
}

// tolerations returns what the pool's pods tolerate.
func (r *round) tolerations() (all []pool.Toleration) {
	for _, t := range r.p.Spec.Template.Spec.Tolerations {
		all = append(all, pool.Toleration{
			Key: t.Key, Exists: t.Operator == corev1.TolerationOpExists, Value: t.Value, Effect: string(t.Effect),
		})
	}
	return all
}

// ask asks the NodeManagers of workers what the ResourceManager does not say.
func (r *round) ask(ctx context.Context) {
	if r.k.observer.Cluster == nil {
		return
	}
	there := map[string]bool{}
	var running, starting []*place
	for _, pl := range r.places {
		if pl.worker.Pod == nil {
			continue
		}
		there[pl.worker.Name] = true
		switch pl.asks = pool.Asks(&r.in, pl.worker); {
		case pl.asks == pool.Nothing || pl.pod.ip == "":
		case pl.asks == pool.ItsName:
			starting = append(starting, pl)
		default:
			running = append(running, pl)
		}
	}
	r.askEach(ctx, running)
	r.askEach(ctx, starting) // they take no time from those that drain
	for _, s := range r.k.observer.Silent(r.now, func(worker string) bool { return there[worker] }) {
		r.t.add(v1alpha1.ConditionNMUnreachable, "NoAnswer", fmt.Errorf("the NodeManager of worker %s does not say "+
			"which containers run, so its drain waits for their start; check its web port, and with https or Kerberos "+
			"the names and the Secret: %w", s.Worker, s.Err))
	}
}

// askEach asks some NodeManagers, and says of each worker what they answered.
func (r *round) askEach(ctx context.Context, which []*place) {
	var questions []observeyarn.Question
	for _, pl := range which {
		questions = append(questions, observeyarn.Question{
			Worker: pl.worker.Name, Host: pl.host, IP: pl.pod.ip, Name: pl.asks == pool.ItsName,
		})
	}
	for i, a := range r.k.observer.Ask(ctx, r.now, questions) {
		w := which[i].worker
		switch which[i].asks {
		case pool.ItsListed:
			m := &w.Managers[0]
			m.Listed, m.Unlisted = min(a.Running, m.Containers), !a.Known
		case pool.ItsOwn:
			if a.Known {
				w.Own = &a.Used
			}
		case pool.ItsName:
			if a.Known && !strings.EqualFold(a.Host, which[i].host) {
				w.Stray = a.Host
			}
		}
	}
}

// next returns when the windows next change what is to run.
func (r *round) next() *metav1.Time {
	_, _, at := policy.Windows(r.read.Windows, r.now)
	if at.IsZero() {
		return nil
	}
	t := second(at)
	return &t
}
