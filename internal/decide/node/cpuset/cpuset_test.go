package cpuset_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// asLists compares and prints CPU sets as lists.
var asLists = cmp.Transformer("list", model.CPUSet.String)

// machine is a simulated node whose kernel follows the plans.
type machine struct {
	t       *testing.T
	r       *rand.Rand
	n       model.Node
	whole   model.Topology // with every CPU online
	state   cpuset.State
	policy  model.Policy
	hints   bool                    // new pods have hints
	batch   int                     // CPUs for batch; 0: all
	lists   map[string]model.CPUSet // last lists of cgroups; absent: inherited
	created int
	log     []string
}

func newMachine(t *testing.T, r *rand.Rand) *machine {
	m := &machine{t: t, r: r, lists: map[string]model.CPUSet{}}
	sockets, nodes, l3s, cores, threads := 1+r.IntN(2), 1+r.IntN(2), 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(2)
	id := 0
	for s := range sockets {
		for n := range nodes {
			m.whole.Nodes = append(m.whole.Nodes, model.NUMANode{ID: s*nodes + n, Memory: 1 << 30})
			for l := range l3s {
				for range cores {
					core := id
					for range threads {
						cpu := model.CPU{ID: id, Socket: s, Node: s*nodes + n, L3: (s*nodes+n)*l3s + l, Core: core}
						m.whole.CPUs = append(m.whole.CPUs, cpu)
						id++
					}
				}
			}
		}
	}
	m.n = fixture.Node(model.Amount{})
	m.n.Topology, m.n.Tree.V2 = &m.whole, r.IntN(2) == 0
	if r.IntN(2) == 0 {
		m.policy.Suppress.By, m.batch = model.SuppressByArithmetic, 1+r.IntN(id)
	}
	if r.IntN(2) == 0 {
		m.n.Kubelet.ReservedCPUs = model.CPUs(r.IntN(id))
	}
	m.n.Allocatable.CPU = int64(id-m.n.Kubelet.ReservedCPUs.Len()) * 1000
	return m
}

// add adds a pod that a scheduler would admit, with one to three containers.
func (m *machine) add() {
	m.created++
	uid := fmt.Sprintf("p%04d", m.created*7919%10000) // not in the order of age
	p := fixture.Pod(uid, model.QoSClass(m.r.IntN(3)))
	p.Created = m.n.Now
	ids := []string{fmt.Sprintf("%012x", m.created*10)} // the sandbox
	free := m.n.Allocatable.CPU
	for _, other := range m.n.Pods {
		free -= other.RequestMilli
	}
	for i := range 1 + m.r.IntN(3) {
		c := model.Container{
			Name: string(rune('a' + i)), ID: fmt.Sprintf("%012x", m.created*10+1+i), Init: i == 0 && m.r.IntN(4) == 0,
		}
		if p.QoS != model.BestEffort {
			c.LimitMilli = []int64{0, 500, 1000, 1000, 2000, 3000}[m.r.IntN(6)]
			c.RequestMilli = min(c.LimitMilli, free)
			if m.r.IntN(4) == 0 {
				c.RequestMilli /= 2
			}
			free -= c.RequestMilli
			p.RequestMilli += c.RequestMilli
		}
		p.Containers = append(p.Containers, c)
		ids = append(ids, c.ID)
	}
	if m.r.IntN(3) == 0 {
		p.Class = model.ClassBE
	}
	modes := []model.CPUMode{"", model.CPUNone, model.CPUShare, model.CPUExclusive, model.CPUExclusive}
	p.Annotations.CPUs = modes[m.r.IntN(5)]
	p.Annotations.Placement = []model.CPUPlacement{"", model.PlaceSpread, model.PlaceCores}[m.r.IntN(3)]
	if m.hints && m.r.IntN(3) > 0 {
		p.Annotations.Hint = m.hint(p)
	}
	m.n.Tree.Pods = maps.Clone(m.n.Tree.Pods)
	fixture.Run(&m.n, p, ids...)
}

// change changes or removes one pod and returns its UID.
func (m *machine) change() string {
	if len(m.n.Pods) == 0 {
		return ""
	}
	i := m.r.IntN(len(m.n.Pods))
	p := *m.n.Pods[i]
	p.Containers = slices.Clone(p.Containers)
	switch m.r.IntN(4) {
	case 0: // it ends
		m.n.Pods = slices.Delete(slices.Clone(m.n.Pods), i, i+1)
		m.n.Tree.Pods = maps.Clone(m.n.Tree.Pods)
		for dir := range m.lists {
			if strings.HasPrefix(dir, m.n.Tree.Pods[p.UID].Dir) {
				delete(m.lists, dir)
			}
		}
		delete(m.n.Tree.Pods, p.UID)
		return p.UID
	case 1, 2:
		p.Annotations.CPUs = []model.CPUMode{"", model.CPUNone, model.CPUShare, model.CPUExclusive}[m.r.IntN(4)]
	case 3: // it is resized to a lower limit, or to a higher one with its request
		c := &p.Containers[m.r.IntN(len(p.Containers))]
		if c.LimitMilli >= 2000 {
			c.LimitMilli -= 1000
		} else if c.LimitMilli == 1000 && c.RequestMilli == 1000 && m.spare() >= 1000 {
			c.LimitMilli, c.RequestMilli = 2000, 2000
		}
		c.RequestMilli = min(c.RequestMilli, c.LimitMilli)
		p.RequestMilli = 0
		for _, c := range p.Containers {
			p.RequestMilli += c.RequestMilli
		}
	}
	m.n.Pods = slices.Clone(m.n.Pods)
	m.n.Pods[i] = &p
	return p.UID
}

func (m *machine) spare() int64 {
	spare := m.n.Allocatable.CPU
	for _, p := range m.n.Pods {
		spare -= p.RequestMilli
	}
	return spare
}

// settle decides until no further round is due, and carries out the plans.
func (m *machine) settle() cpuset.Result {
	for range 10 {
		result, next := cpuset.Decide(&m.n, &m.policy, m.state)
		again, _ := cpuset.Decide(&m.n, &m.policy, m.state)
		if d := cmp.Diff(result, again, asLists); d != "" {
			m.fatal("two equal decisions differ:\n%s", d)
		}
		m.state = next
		set := map[string]bool{}
		for _, s := range cpuset.Settle(&m.n, result.CPUs, &m.state, &model.Suppression{CPUs: m.batch}) {
			if set[s.Dir] {
				m.fatal("%s has two settings", s.Dir)
			}
			set[s.Dir] = true
			m.lists[s.Dir], _ = model.ParseCPUs(s.Value.List)
		}
		for dir := range m.lists {
			if !set[dir] {
				released, _ := cpuset.Release(&m.n, model.Owned{})
				m.lists[dir], _ = model.ParseCPUs(released.List)
			}
		}
		m.n.Owned = nil
		for dir := range set {
			file := model.File{Dir: dir, Knob: model.Cpuset}
			m.n.Owned = append(m.n.Owned, model.Owned{File: file, Ours: model.List(m.lists[dir])})
		}
		slices.SortFunc(m.n.Owned, func(a, b model.Owned) int { return a.File.Compare(b.File) })
		m.n.Pods = slices.Clone(m.n.Pods)
		for i, p := range m.n.Pods {
			copied := *p
			copied.CPUCondition = model.PodCondition{}
			for _, c := range result.Conditions {
				if c.UID == p.APIUID {
					copied.CPUCondition = c.PodCondition
				}
			}
			m.n.Pods[i] = &copied
		}
		if result.Next.IsZero() || result.Next.Sub(m.n.Now) > time.Second {
			return result
		}
		m.n.Now = result.Next
	}
	m.fatal("rounds never end")
	return cpuset.Result{}
}

// blind returns the node as a restarted agent sees it: possibly before the kubelet's settings are known.
func (m *machine) blind() *model.Node {
	n := m.n
	if m.r.IntN(2) == 0 {
		n.Kubelet = model.Kubelet{}
	}
	return &n
}

// effective returns the CPUs of a container: the intersection of all lists down to it.
func (m *machine) effective(dir string) model.CPUSet {
	all := m.n.Topology.Online()
	for i := range len(dir) + 1 {
		if i == len(dir) || dir[i] == '/' {
			if list, found := m.lists[dir[:i]]; found {
				if within := all.And(list); !within.Empty() {
					all = within // on v2, a list without CPUs of its parent has no effect
				}
			}
		}
	}
	return all
}

func (m *machine) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter %s\nstate %+v", fmt.Sprintf(format, args...), strings.Join(m.log, ", "), m.state)
}

// check checks the invariants.
func (m *machine) check(result cpuset.Result) {
	m.t.Helper()
	online := m.n.Topology.Online()
	if result.CPUs == nil {
		for dir, list := range m.lists {
			if list != online {
				m.fatal("no pod requests CPUs, but %s has the list %s", dir, list)
			}
		}
		return
	}
	if result.CPUs.Shared.Empty() {
		m.fatal("no shared CPU is left")
	}
	owner := map[int]string{}
	for _, h := range m.state.Allocations {
		if h.CPUs.Overlaps(m.n.Kubelet.ReservedCPUs) || !h.CPUs.Within(online) {
			m.fatal("%+v has CPUs that are reserved or offline", h)
		}
		for id := range h.CPUs.All() {
			if other, taken := owner[id]; taken {
				m.fatal("CPU %d is assigned to %s and %s", id, other, h.UID)
			}
			owner[id] = h.UID
		}
		i := slices.IndexFunc(m.n.Pods, func(p *model.Pod) bool { return p.UID == h.UID })
		if i < 0 {
			m.fatal("%+v belongs to a pod that is gone", h)
		}
		for _, c := range m.n.Pods[i].Containers {
			differs := c.Name == h.Container && h.CPUs.Len() != int(c.LimitMilli/1000)
			if differs && !slices.ContainsFunc(result.Notices, func(n model.Notice) bool { return n.UID == h.UID }) {
				m.fatal("%+v has another number of CPUs than its limit of %d", h, c.LimitMilli)
			}
		}
	}
	assigned := func(p *model.Pod) bool {
		return slices.ContainsFunc(m.state.Allocations, func(h cpuset.Allocation) bool { return h.UID == p.UID })
	}
	for _, p := range m.n.Pods {
		group := m.n.Tree.Pods[p.UID]
		for _, name := range group.Containers {
			where := m.effective(group.Dir + "/" + name)
			if p.Class == model.ClassBE && m.batch > 0 && !assigned(p) {
				usable := result.CPUs.Shared.Minus(result.CPUs.NotBatch)
				if usable.Empty() {
					usable = result.CPUs.Shared
				}
				want := min(m.batch, usable.Len())
				if where.Len() != want || !where.Within(usable) {
					m.fatal("%s of %s, which is batch, runs on %s, not on %d of %s", name, p.UID, where, want, usable)
				}
			}
			for _, h := range m.state.Allocations {
				if h.Mode == model.CPUExclusive && h.UID != p.UID && where.Overlaps(h.CPUs) {
					m.fatal("%s of %s runs on %s, of which %s are exclusive to %s",
						name, p.UID, where, where.And(h.CPUs), h.UID)
				}
			}
			i := slices.IndexFunc(p.Containers, func(c model.Container) bool { return c.ID == name })
			own := slices.IndexFunc(m.state.Allocations, func(h cpuset.Allocation) bool {
				return i >= 0 && h.UID == p.UID && h.Container == p.Containers[i].Name
			})
			if own >= 0 && where != m.state.Allocations[own].CPUs {
				m.fatal("%s of %s runs on %s, not on %s", name, p.UID, where, m.state.Allocations[own].CPUs)
			}
		}
		if p.Annotations.CPUs == model.CPUShare || p.Annotations.CPUs == model.CPUExclusive {
			i := slices.IndexFunc(result.Conditions, func(c model.Condition) bool { return c.UID == p.UID })
			if i < 0 || result.Conditions[i].Met && !assigned(p) {
				m.fatal("%s requests CPUs, has %v and conditions %+v", p.UID, assigned(p), result.Conditions)
			}
		}
	}
}

// TestRelease checks that a restored list on v2 does not exclude CPUs that come online later.
func TestRelease(t *testing.T) {
	n := model.Node{
		Tree:     model.Tree{V2: true, CPUs: model.CPUs(0)},
		Topology: &model.Topology{CPUs: []model.CPU{{ID: 0}, {ID: 1, Core: 1}}, Possible: model.CPUs(0, 1, 2, 3)},
	}
	theirs := model.Owned{Theirs: model.Value{List: model.Inherited}}
	for want, change := range map[string]func(){
		"0-3": func() {},
		"0":   func() { n.Tree.V2 = false },
	} {
		before := n
		change()
		if value, _ := cpuset.Release(&n, theirs); value.List != want {
			t.Errorf("restored is %q, want %q", value.List, want)
		}
		n = before
	}
}

// TestProperties checks random nodes under random changes.
func TestProperties(t *testing.T) {
	for seed := range fixture.Times(uint64(400)) {
		r := rand.New(rand.NewPCG(seed, 4))
		m := newMachine(t, r)
		m.hints = seed%2 == 0
		for range 60 {
			before := slices.Clone(m.state.Allocations)
			var changed string
			switch k := r.IntN(10); {
			case k < 3:
				m.add()
				m.log = append(m.log, "add")
			case k < 4 && m.batch > 0:
				m.batch = 1 + r.IntN(len(m.whole.CPUs))
				m.log = append(m.log, fmt.Sprint("batch ", m.batch))
			case k < 9:
				changed = m.change()
				m.log = append(m.log, "change "+changed)
			default:
				m.n.Now = m.n.Now.Add(time.Hour)
			}
			m.n.Now = m.n.Now.Add(10 * time.Second)
			result := m.settle()
			m.check(result)
			for _, h := range before {
				if h.UID != changed && !slices.Contains(m.state.Allocations, h) {
					m.fatal("%+v had to move because of %s", h, changed)
				}
			}
			// A restart changes nothing, neither with the state from its file, nor without it from the cgroups.
			text, err := json.Marshal(m.state)
			var read cpuset.State
			if err != nil || json.Unmarshal(text, &read) != nil {
				m.fatal("the state cannot be saved: %v", err)
			}
			if result.CPUs != nil {
				result.CPUs.Batch, result.CPUs.Left = model.CPUSet{}, nil // which Settle sets
			}
			resumed, _ := cpuset.Decide(&m.n, &m.policy, read)
			if d := cmp.Diff(result.CPUs, resumed.CPUs, asLists); d != "" && result.CPUs != nil {
				m.fatal("after a restart (-before +after):\n%s", d)
			}
			lost, _ := cpuset.Decide(m.blind(), &m.policy, cpuset.State{})
			if result.CPUs == nil || len(result.CPUs.Own) == 0 {
				continue
			}
			if lost.CPUs == nil || !slices.Equal(lost.CPUs.Own, result.CPUs.Own) {
				m.fatal("after a restart without the state: %+v, not %+v", lost.CPUs, result.CPUs)
			}
		}
	}
}
