package agent

import (
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/nri"
)

// place answers the container runtime from the last round.
func (a *Agent) place(c nri.Container) (nri.Placement, bool) {
	p, ok := a.placing.Load().Place(node.Container{
		PodUID: c.PodUID, Name: c.Name, Update: c.Update, CPUs: c.CPUs, OOMScore: c.OOMScore,
	})
	return nri.Placement{CPUs: p.CPUs, Mems: p.Mems, OOMScore: p.OOMScore}, ok
}
