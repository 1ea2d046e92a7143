package cpuset_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// hint returns a hint for a pod: mostly free CPUs in the right number, as a scheduler writes them, else any CPUs, as a
// tenant may.
func (m *machine) hint(p *model.Pod) model.CPUSet {
	var from model.CPUSet
	for _, c := range m.whole.CPUs {
		from.Add(c.ID)
	}
	n := 1 + m.r.IntN(from.Len())
	if m.r.IntN(3) > 0 {
		from = from.Minus(m.n.Kubelet.ReservedCPUs)
		for _, h := range m.state.Allocations {
			from = from.Minus(h.CPUs)
		}
		n = 0
		for _, c := range p.Containers {
			if !c.Init && c.LimitMilli%1000 == 0 && c.RequestMilli == c.LimitMilli {
				n += int(c.LimitMilli / 1000)
			}
		}
	}
	var hint model.CPUSet
	all := slices.Collect(from.All())
	m.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, id := range all[:min(n, len(all))] {
		hint.Add(id)
	}
	return hint
}

// TestHintGivesNothing checks what a pod gets with a hint against what it gets without: on random nodes, with any hint,
// as many CPUs or as few, none of them reserved, offline or another pod's, and every other pod keeps what it has. So a
// tenant who writes a hint gains nothing but the choice. If the hinted CPUs are free and fit, it gets exactly them;
// otherwise exactly those that it gets without a hint, and one event.
func TestHintGivesNothing(t *testing.T) {
	var taken, unused, refused int
	for seed := range uint64(1500) {
		m := newMachine(t, rand.New(rand.NewPCG(seed, 7)))
		for range m.r.IntN(4) {
			m.add()
			m.settle()
		}
		pod := m.newest()
		hint := m.hint(pod)
		without := own(decideWith(m, pod, model.CPUSet{}), pod.UID)
		result := decideWith(m, pod, hint)
		with := own(result, pod.UID)
		if with.Len() != without.Len() {
			m.fatal("with the hint %s the pod has CPUs %s, without it %s", hint, with, without)
		}
		if !with.Within(free(m)) {
			m.fatal("with the hint %s the pod has CPUs %s, of which only %s are free", hint, with, free(m))
		}
		for _, h := range m.state.Allocations {
			if after := own(result, h.UID); !h.CPUs.Within(after) {
				m.fatal("with the hint %s, %s has CPUs %s, and had %s", hint, h.UID, after, h.CPUs)
			}
		}
		told := slices.ContainsFunc(result.Notices, func(n model.Notice) bool {
			return n.Reason.Code == model.CPUsHintUnused && n.UID == pod.APIUID
		})
		switch {
		case with.Empty():
			refused++
		case with == hint:
			taken++
		default:
			if unused++; with != without {
				m.fatal("hinted %s, the pod has CPUs %s, and without the hint %s", hint, with, without)
			}
			if hint.Len() == with.Len() && hint.Within(free(m)) && pod.Annotations.Placement != model.PlaceCores {
				m.fatal("the CPUs %s were free and as many as requested, and the pod has %s", hint, with)
			}
		}
		if told != (!with.Empty() && with != hint) {
			m.fatal("hinted %s, the pod has CPUs %q; an event about the hint: %v", hint, with, told)
		}
	}
	if taken < 100 || unused < 100 || refused < 100 {
		t.Errorf("hints were taken %d times, unused %d times, and %d pods got no CPUs: too few of one to show anything",
			taken, unused, refused)
	}
}

// newest adds a pod that requests CPUs for each of its containers.
func (m *machine) newest() *model.Pod {
	p := fixture.Pod("pnew", model.Burstable)
	p.Created, p.Annotations.CPUs = m.n.Now, []model.CPUMode{model.CPUShare, model.CPUExclusive}[m.r.IntN(2)]
	p.Annotations.Placement = []model.CPUPlacement{"", model.PlaceSpread, model.PlaceCores}[m.r.IntN(3)]
	for i := range 1 + m.r.IntN(2) {
		limit := int64(1+m.r.IntN(2)) * 1000
		p.Containers = append(p.Containers, model.Container{
			Name: string(rune('a' + i)), LimitMilli: limit, RequestMilli: limit,
		})
		p.RequestMilli += limit
	}
	fixture.Bind(&m.n, p)
	return p
}

// decideWith decides a round in which a pod has this hint.
func decideWith(m *machine, pod *model.Pod, hint model.CPUSet) cpuset.Result {
	n := m.n
	n.Pods = slices.Clone(n.Pods)
	for i, p := range n.Pods {
		hinted := *p
		if hinted.Annotations.Hint = (model.CPUSet{}); p.UID == pod.UID {
			hinted.Annotations.Hint = hint
		}
		n.Pods[i] = &hinted
	}
	result, _ := cpuset.Decide(&n, &m.policy, m.state)
	return result
}

// own returns the CPUs of a pod by a result.
func own(r cpuset.Result, uid string) model.CPUSet {
	var all model.CPUSet
	if r.CPUs != nil {
		for _, o := range r.CPUs.Own {
			if o.UID == uid {
				all = all.Or(o.CPUs)
			}
		}
	}
	return all
}

// free returns the CPUs that are nobody's own and not reserved, by brute force.
func free(m *machine) model.CPUSet {
	all := m.n.Topology.Online().Minus(m.n.Kubelet.ReservedCPUs)
	for _, h := range m.state.Allocations {
		all = all.Minus(h.CPUs)
	}
	return all
}

// TestRoom checks the room for further pods: the free CPUs are those that are nobody's, a pod that requests the most
// exclusive CPUs gets them, and one that requests one more does not. So a scheduler can count on it.
func TestRoom(t *testing.T) {
	rooms := 0
	for seed := range uint64(300) {
		m := newMachine(t, rand.New(rand.NewPCG(seed, 8)))
		m.policy.Mode = model.ModeEnforce
		m.policy.Privileges = []model.PrivilegeRule{{Allow: []model.Privilege{model.PrivilegeExclusiveCPUs}}}
		var result cpuset.Result
		for range m.r.IntN(6) {
			m.add()
			result = m.settle()
		}
		result, _ = cpuset.Decide(&m.n, &m.policy, m.state)
		if result.Room == nil || result.Room.Free != free(m) {
			m.fatal("the room is %+v, and %s are free", result.Room, free(m))
		}
		for _, more := range []int{0, 1} {
			cpus := result.Room.Exclusive + more
			if cpus == 0 {
				continue
			}
			rooms++
			n := m.n
			p := fixture.Pod("pnew", model.Guaranteed)
			p.Created, p.Annotations.CPUs = n.Now, model.CPUExclusive
			p.LimitMilli, p.RequestMilli = int64(cpus)*1000, int64(cpus)*1000
			p.Containers = []model.Container{{Name: "a", LimitMilli: p.LimitMilli, RequestMilli: p.RequestMilli}}
			n.Pods = nil
			for _, other := range m.n.Pods { // waiting pods would take what is free
				if had := own(result, other.UID); !had.Empty() {
					bought := *other
					bought.RequestMilli = int64(had.Len()) * 1000 // what else it requests is not in the room
					n.Pods = append(n.Pods, &bought)
				}
			}
			n.Allocatable.CPU = 0 // not known: the CPUs count
			fixture.Bind(&n, p)
			if got := own(first(cpuset.Decide(&n, &m.policy, m.state)), "pnew"); got.Empty() != (more == 1) {
				m.fatal("the room is %+v, and a pod that requests %d CPUs gets %q", *result.Room, cpus, got)
			}
		}
	}
	if rooms < 100 {
		t.Errorf("only %d rooms", rooms)
	}
}

func first(r cpuset.Result, _ cpuset.State) cpuset.Result { return r }
