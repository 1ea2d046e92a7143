package node_test

import (
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// TestLeave checks that an agent that stops lifts the limits from which the kernel reclaims, and changes nothing else.
func TestLeave(t *testing.T) {
	var owned []model.Owned
	for _, k := range model.Knobs() {
		owned = append(owned, model.Owned{
			File: model.File{Dir: "kubepods/besteffort/podb", Knob: k}, Ours: model.Number(1 << 20),
			Theirs: model.Number(model.Unlimited),
		})
	}
	got := node.Leave(owned).Settings
	if len(got) != 1 || got[0].Knob != model.MemoryHigh || got[0].Value != model.Number(model.Unlimited) ||
		!got[0].Release {
		t.Errorf("%+v", got)
	}
}
