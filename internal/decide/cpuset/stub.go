package cpuset

import "github.com/waterline-io/waterline/internal/model"

type machine struct{ t *model.Topology }

func newMachine(t *model.Topology) *machine { return &machine{t} }

func (m *machine) take(free, near model.CPUSet, n int, how model.CPUPlacement) (model.CPUSet, bool) {
	var s model.CPUSet
	for id := range free.All() {
		if n == 0 {
			break
		}
		s.Add(id)
		n--
	}
	return s, n == 0
}

func (m *machine) shed(held model.CPUSet, n int, how model.CPUPlacement) model.CPUSet {
	s, _ := m.take(held, model.CPUSet{}, n, how)
	return s
}
