package pools

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	registerWithin = 3 * time.Minute
	recoverWithin  = 10 * time.Minute
	attempts       = 2
	// strayAfter is when a NodeManager that did not register is asked for its name. Its web services are up by then.
	strayAfter = 20 * time.Second
	// lookWithin bounds how long a ResourceManager that accepts requests and does not answer delays a round, in which
	// workers may have to stop.
	lookWithin = 5 * time.Second
	// readEvery is the time between two attempts to have the exclude file read at first. An attempt can take lookWithin.
	readEvery = 30 * time.Second
	// activeWithin is the part of it in which one of them must say that it is the active one.
	activeWithin = 3 * time.Second
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
	s.Graceful = r.graceful()
	return s
}

// graceful reports whether workers can be decommissioned gracefully.
func (r *round) graceful() bool {
	return r.p.Spec.YARN.ExcludeFile != "" && r.k.c.o.ExcludeDir != "" && r.mayExclude()
}

// mayExclude reports whether the pool may name its exclude file.
func (r *round) mayExclude() bool {
	scope := r.k.c.o.Reach[r.k.namespace]
	return scope.AllowsFile(r.p.Spec.YARN.ExcludeFile)
}

// observe builds the input of the decision.
func (r *round) observe(ctx context.Context) {
	k := r.k
	if r.p.DeletionTimestamp == nil {
		r.opening = pool.Opening(policy.OpeningAt(r.read.Windows, r.now))
	}
	r.lookAtRM(ctx)
	r.lookAtExcludes(ctx)
	r.in = pool.Input{Now: r.now, Settings: r.settings(), RM: pool.RM{Known: r.view != nil}}
	if r.p.DeletionTimestamp != nil {
		r.in.Deleted = r.p.DeletionTimestamp.Time
	}
	if s := k.status.ResourceManager; s != nil {
		r.in.RM.Since = s.Since.Time
	}
	if r.view != nil {
		r.in.RM.Labels = r.view.label
	}
	r.list()
	r.watch()
	on := k.c.workersOn()
	before := rows(k.status)
	for i := range r.places {
		pl := &r.places[i]
		pl.row = before[pl.worker.Name]
		r.fill(pl, on)
	}
	r.ask(ctx)
	// A worker whose numbers are not true yet is left alone, but not for long: it may have to stop.
	r.unsettled = map[string]bool{}
	since := map[string]time.Time{}
	r.places = slices.DeleteFunc(r.places, func(pl place) bool {
		if r.seen(&pl) {
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
	for _, pl := range r.places {
		r.in.Workers = append(r.in.Workers, *pl.worker)
	}
	r.readBack()
}

// lookAtRM reads what the ResourceManager shows, and notes which one is active.
func (r *round) lookAtRM(ctx context.Context) {
	k := r.k
	d, err := r.dialer()
	if err != nil {
		r.t.add(v1alpha1.ConditionRMUnreachable, notAllowed, err)
		return
	}
	secret, err := r.secret(ctx)
	if err != nil {
		r.t.add(v1alpha1.ConditionRMUnreachable, "NoSecret", err)
		return
	}
	if k.engine == nil || !reflect.DeepEqual(k.engine.spec, r.p.Spec.YARN) || !reflect.DeepEqual(k.engine.secret, secret) {
		e, reason, err := newEngine(r.p.Spec.YARN, secret, d)
		if err != nil {
			k.secretRead = time.Time{} // it may be corrected now
			r.t.add(v1alpha1.ConditionRMUnreachable, reason, err)
			return
		}
		if k.engine != nil {
			e.requests.Store(k.engine.requests.Load())
		}
		k.engine, k.readTried = e, time.Time{}
	}
	looking, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	v, err := k.engine.look(looking, r.ours)
	if err != nil {
		r.unreachable(err)
		return
	}
	r.view = v
	now := &v1alpha1.ResourceManagerStatus{
		Address: v.info.Address, Version: v.info.Version, Started: second(v.info.Started), Since: second(r.now),
	}
	if s := k.status.ResourceManager; s != nil && s.Address == now.Address && s.Started.Equal(&now.Started) {
		now.Since = s.Since
	}
	k.status.ResourceManager = now
}

// unreachable notes that the ResourceManager does not answer.
func (r *round) unreachable(err error) {
	reason, fix := causeOf(err)
	if reason == "LoginFailed" || reason == "Refused" {
		r.k.secretRead = time.Time{} // it may be corrected now
	}
	r.t.add(v1alpha1.ConditionRMUnreachable, reason, fmt.Errorf("no ResourceManager of %s answers as the active one; "+
		"workers stay as they are, and stop at their ends; %s: %w",
		strings.Join(r.p.Spec.YARN.ResourceManagers, ", "), fix, err))
}

// secretEvery is how long a Secret counts after it was read.
const secretEvery = 2 * time.Minute

// secret returns the content of the pool's Secret; nil if it names none.
func (r *round) secret(ctx context.Context) (map[string][]byte, error) {
	return r.secretOf(ctx, "spec.yarn", v1alpha1.NameOf(r.p.Spec.YARN.AuthSecret))
}

// secretOf returns the content of the Secret that the field authSecret of an engine names; nil if it names none.
func (r *round) secretOf(ctx context.Context, field, name string) (map[string][]byte, error) {
	k := r.k
	switch {
	case name == "":
		return nil, nil
	case k.secretName == name && r.now.Sub(k.secretRead) < secretEvery:
		return k.secret, nil
	}
	var s corev1.Secret
	err := k.c.o.Core.Get().Namespace(k.namespace).Resource("secrets").Name(name).Timeout(apiWithin).Do(ctx).Into(&s)
	if err != nil && field != "spec.yarn" {
		return nil, fmt.Errorf("%s.authSecret: reading Secret %s: %w", field, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("spec.yarn.authSecret: reading Secret %s, which needs the keys %s, %s and %s for "+
			"Kerberos, or %s for https: %w", name, keyPrincipal, keyKeytab, keyKrb5, keyCA, err)
	}
	k.secret, k.secretName, k.secretRead = s.Data, name, r.now
	return k.secret, nil
}

// causeOf names the cause of an error of the ResourceManager, and what to do.
func causeOf(err error) (reason, fix string) {
	var status *yarn.StatusError
	var login *yarn.KerberosError
	switch {
	case isNotAllowed(err):
		return notAllowed, "the administrator of the cluster says what pools may reach"
	case errors.As(err, &login):
		return "LoginFailed", "check the Secret of spec.yarn.authSecret, and the KDC"
	case errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return "Refused", "check spec.yarn.user, or the Secret of spec.yarn.authSecret"
	case errors.Is(err, yarn.ErrStandby):
		reason = "Standby"
	default:
		reason = "NoAnswer"
	}
	return reason, "check that spec.yarn.resourceManagers has the addresses of all of the cluster's, and that the " +
		"manager can reach them"
}

// lookAtExcludes reads the exclude file. After a start of this controller, the ResourceManager reads it once more,
// because the one before may have been killed after it had written it.
func (r *round) lookAtExcludes(ctx context.Context) {
	k := r.k
	name := r.p.Spec.YARN.ExcludeFile
	if name == "" {
		return
	}
	r.excluded = map[string]bool{}
	if k.c.o.ExcludeDir == "" {
		r.t.add(v1alpha1.ConditionExcludeFailed, "NoDirectory", errors.New("spec.yarn.excludeFile is set, and the manager "+
			"has no directory of exclude files, so workers are not decommissioned gracefully; set the chart's value "+
			"manager.pools.excludeVolume, or leave excludeFile out"))
		return
	}
	if !r.mayExclude() {
		r.t.add(v1alpha1.ConditionExcludeFailed, notAllowed, fmt.Errorf("pools of namespace %s may not use the exclude file "+
			"%s, so workers are not decommissioned gracefully; add it to the chart's value "+
			"manager.pools.allow.%[1]s.excludeFiles, or leave excludeFile out", k.namespace, name))
		return
	}
	f := excludeFile{k.c.o.ExcludeDir, name}
	content, err := f.read()
	var hosts map[string]bool
	if err == nil {
		hosts, err = f.hosts(content)
	}
	if err != nil {
		r.t.add(v1alpha1.ConditionExcludeFailed, "Unreadable", err)
		return
	}
	r.excluded = hosts
	if r.view == nil || k.unread != nil {
		return
	}
	if r.now.Sub(k.readTried) >= readEvery {
		k.readTried, k.readErr = r.now, k.engine.readExcludes(ctx, r.read.Drain)
	}
	if r.t.add(v1alpha1.ConditionExcludeFailed, "NotRead", k.readErr); k.readErr == nil {
		k.unread = map[string]bool{}
	}
}

// list lists the workers: those of the pool, and those that are one too many and have not left yet.
func (r *round) list() {
	pods := map[string]*podRow{}
	r.k.c.pods[r.k.namespace].Each(func(_ string, p podRow) {
		if p.owner == r.p.UID {
			pods[p.name] = &p
		}
	})
	add := func(name, node string, index int) {
		pl := place{worker: &pool.Worker{Name: name}, node: node, index: index, pod: pods[name]}
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
		if !listed[w.Name] && (pool.Phase(w.Phase) != pool.Terminated || r.excluded[r.host(w.Name, w.Node)]) {
			add(w.Name, w.Node, -1)
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

// fill says what was observed of a worker, besides its NodeManagers.
func (r *round) fill(pl *place, on map[string]int) {
	w := pl.worker
	pl.host = r.host(w.Name, pl.node)
	pl.labelled = net.JoinHostPort(pl.host, "0")
	if r.hostNetwork() {
		pl.labelled = net.JoinHostPort(pl.host, strconv.Itoa(nmPort))
	}
	if pl.index >= 0 {
		w.Wanted, w.End = pool.Schedule(r.now, r.opening, pool.Ramp{Waves: r.read.Waves, Interval: r.read.WaveInterval},
			pl.index, len(r.places))
	}
	n, known := r.nodes[pl.node]
	w.Cordoned = known && n.Closed(r.tolerations())
	w.Room = r.p.Spec.Replicas != nil || n.Room(r.read.Floor.Plus(r.read.Overhead).Plus(r.read.Beside))
	w.Unsold, w.Sells = pl.pod == nil && !r.sold(), n.Selling
	floor, ceiling := r.in.Settings.Floor, pool.Size{}
	if pl.pod != nil {
		if own, most := r.bounds(pl.pod); own != (pool.Size{}) {
			floor, ceiling = own, most
		}
	}
	w.Figures = r.figures(pl.node, on[pl.node], floor)
	w.Allowance = w.Figures.Now
	w.Heard = r.k.heard[w.Name]
	w.Excluded = r.excluded[pl.host] || r.k.unread[pl.host]
	if pl.row.Ended != nil {
		w.Ended = pl.row.Ended.Time
	}
	if r.p.Generation == r.k.status.ObservedGeneration {
		w.Attempts = pool.Failures(int(pl.row.Attempts), w.Ended, r.opening)
	}
	if r.view != nil {
		w.Label = r.view.labelOf(pl)
	}
	switch p := pl.pod; {
	case p != nil && !p.over:
		w.Pod = &pool.Pod{
			Started: p.started, Deleting: p.deleting || w.Cordoned, Evicted: known && n.Evict == p.uid, Marks: p.marks,
			Outdated: p.template != "" && p.template != r.template(),
		}
		if ceiling != (pool.Size{}) {
			w.Pod.Floor, w.Pod.Ceiling = floor, ceiling
		}
	case p != nil && !p.ended.IsZero():
		w.Ended = p.ended
	case pl.row.Pod != "" || p != nil: // it is gone since the last round, or nobody knows since when
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

// seen adds the NodeManagers of a worker. It returns false if what the ResourceManager shows of them is not true yet.
func (r *round) seen(pl *place) bool {
	if r.view == nil {
		return true
	}
	all, settled := r.view.managers(pl.host)
	for i := range all {
		if listed, asked := r.view.listed[pl.worker.Name]; asked {
			all[i].Listed, all[i].Unlisted = max(min(listed, all[i].Containers), 0), listed == unlisted
		}
	}
	pl.worker.Managers = all
	if m, _ := pl.worker.Manager(); m != nil && m.Label != r.in.Settings.Label ||
		m == nil && pl.worker.Pod != nil { // it may register any moment
		r.k.engine.doubt = true
	}
	return settled
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
