package scheduler

import (
	"context"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
)

// loadAware prefers nodes with little real load. It refuses none.
type loadAware struct {
	nodeScores
	view     *view
	settings place.Settings
	loads    loads
}

// loads are what the view knows of each node. It is brought up to date before the nodes are scored, so that scoring a
// node takes no lock. The framework schedules one pod after the other, and scores nodes only after PreScore.
type loads struct {
	nodes   map[string]*load
	scored  slots[scoredLoad]
	changes *changes
	second  time.Duration // when the nodes were looked at last of which something is due
}

func newLoads(v *view) loads { return loads{nodes: map[string]*load{}, changes: v.changes()} }

type load struct {
	node   place.Node
	report place.Report
	since  time.Duration // when the report changed
	due    time.Duration // when time alone may change what it scores: an estimate fades, or the report grows old
}

// plan sets when the load is due. It was just brought up to date.
func (l *load) plan(now, steady time.Duration, s *place.Settings) {
	l.due = math.MaxInt64
	if steady < l.due {
		l.due = steady.Truncate(fading) + fading
	}
	if l.node.Report != nil {
		l.due = min(l.due, l.since+s.ReportMaxAge)
	}
	if l.node.Report == nil || l.node.Agent.Gone > 0 {
		l.due = now
	}
}

// scoredLoad is what is read of a node to score it.
type scoredLoad struct {
	load    place.Load
	trusted bool
	batch   bool // it takes batch

	// The last score, and the estimate that it is of: pods that follow each other often have equal requests.
	adds  model.Amount
	score int64

	// The last score by BatchFit, and the number of the pod's requests and the generation of the node that it is of.
	batchScore       int64
	kind, generation int64
}

// with returns the score of a trusted load together with a pod.
func (l *scoredLoad) with(adds model.Amount, s *place.Settings) int64 {
	if l.adds != adds {
		l.adds, l.score = adds, l.load.Score(adds, s)
	}
	return l.score
}

func (l *load) scored(s *place.Settings) scoredLoad {
	if l == nil {
		return scoredLoad{}
	}
	of, why := place.LoadOf(&l.node, s)
	return scoredLoad{load: of, trusted: why.Code == "", batch: place.BatchFilter(&l.node, s).Code == ""}
}

// refresh looks at the nodes that changed, and each second at those of which something is due.
func (l *loads) refresh(v *view, s *place.Settings) {
	now := v.now()
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range l.changes.nodes {
		n := l.nodes[name]
		if n == nil {
			n = &load{}
			l.nodes[name] = n
		}
		*n = load{}
		v.look(name, &n.node, &n.report, s)
		n.since = now - n.report.Age
		n.plan(now, v.ledger.Steady(name), s)
		l.score(name, n, s)
	}
	clear(l.changes.nodes)
	second := now.Truncate(time.Second)
	all := l.changes.all
	if second == l.second && !all {
		return
	}
	l.second, l.changes.all = second, false
	l.scored.prune(v.known)
	for name, n := range l.nodes {
		if now < n.due && !all {
			continue
		}
		n.node.Assumed, n.node.Agent = v.ledger.Load(name, now.Truncate(fading), s), v.agents.of(name, now)
		n.report.Age = now - n.since
		n.plan(now, v.ledger.Steady(name), s)
		l.score(name, n, s)
		if n.node.Report == nil && v.ledger.Empty(name) {
			delete(l.nodes, name) // it has no report, as a node that is gone
			if slot := l.scored.named(name); slot != nil {
				*slot = scoredLoad{} // nothing brings it up to date any more
			}
		}
	}
}

// score brings what is read for scoring up to date.
func (l *loads) score(name string, n *load, s *place.Settings) {
	if slot := l.scored.named(name); slot != nil {
		*slot = n.scored(s)
	}
}

// of returns what is read of a node to score it.
func (l *loads) of(info fwk.NodeInfo, s *place.Settings) *scoredLoad {
	slot, isNew := l.scored.find(info)
	if isNew {
		*slot = l.nodes[info.Node().Name].scored(s)
	}
	return slot
}

var (
	_ fwk.PreScorePlugin  = (*loadAware)(nil)
	_ fwk.ScorePlugin     = (*loadAware)(nil)
	_ fwk.ScoreExtensions = (*loadAware)(nil)
	_ fwk.ReservePlugin   = (*loadAware)(nil)
	_ fwk.SignPlugin      = (*loadAware)(nil)
)

func newLoadAware(v *view, args LoadAwareArgs, _ fwk.Handle) (fwk.Plugin, error) {
	s, err := args.settings()
	if err != nil {
		return nil, err
	}
	v.useLoad(s)
	return &loadAware{view: v, settings: s, loads: newLoads(v)}, nil
}

// Name returns the plugin's name.
func (l *loadAware) Name() string { return LoadAwareName }

// PreScore scores the nodes by the load that is expected there. Batch pods are scored by BatchFit. Without any report,
// all nodes would score as with the stock scheduler, which has a plugin for that.
func (l *loadAware) PreScore(_ context.Context, _ fwk.CycleState, p *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	pod := podOf(p)
	if pod.IsBatch() || !l.view.hasReports() {
		return fwk.NewStatus(fwk.Skip)
	}
	l.loads.refresh(l.view, &l.settings)
	adds := place.Estimate(pod.Requests, &l.settings)
	l.begin(nodes)
	for i, info := range nodes {
		if known := l.loads.of(info, &l.settings); known.trusted {
			l.scores[i] = known.with(adds, &l.settings)
			continue
		}
		var n place.Node
		nodeOf(info, &n)
		l.scores[i] = place.StockScore(&n, pod)
	}
	return nil
}

// Reserve adds the use that is expected of the pod to its node.
func (l *loadAware) Reserve(_ context.Context, _ fwk.CycleState, p *corev1.Pod, node string) *fwk.Status {
	if isBatch(p) {
		return nil
	}
	l.view.assume(node, p, place.Estimate(requests(p), &l.settings))
	return nil
}

// Unreserve takes it back.
func (l *loadAware) Unreserve(_ context.Context, _ fwk.CycleState, p *corev1.Pod, _ string) {
	l.view.release(p)
}

// EventsToRegister returns nothing: the plugin refuses no pod.
func (l *loadAware) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// SignPod adds nothing: the score depends on the requests, which the stock plugins sign.
func (l *loadAware) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}
