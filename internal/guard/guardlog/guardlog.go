// Package guardlog holds what a guard writes down. It is apart from the guard for programs that read it on other
// machines.
package guardlog

import (
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/model"
)

// Record is one decision about a container, or its end: after a signal, because somebody else ended it, or with its
// worker. The log has one line for each.
type Record struct {
	At          time.Time       `json:"at"`
	Container   string          `json:"container"`
	Application string          `json:"application,omitzero"`
	User        string          `json:"user,omitzero"`
	Master      bool            `json:"master,omitzero"`    // of its application
	Signal      string          `json:"signal,omitzero"`    // PWR, TERM or KILL
	Processes   int             `json:"processes,omitzero"` // that got the signal
	Asked       bool            `json:"asked,omitzero"`     // the ResourceManager was asked for the signal instead
	Reason      string          `json:"reason,omitzero"`
	Why         string          `json:"why,omitzero"` // the operands, for people
	Operands    []model.Operand `json:"operands,omitempty"`
	Tried       []Try           `json:"tried,omitempty"` // the signals before
	Left        bool            `json:"left,omitzero"`   // no process of it is left
	// WithWorker means that it left because its worker's pod ended: the NodeManager listed it until then.
	WithWorker bool `json:"withWorker,omitzero"`
	Exit       int  `json:"exit,omitzero"` // of one that left, by the NodeManager; 0: not known
	// Allowed is what containers might use when one left that got no signal, while the worker had to shrink or memory was
	// scarce.
	Allowed *shed.Allowance `json:"allowed,omitempty"`
	Error   string          `json:"error,omitzero"`
}

// Try is an earlier signal.
type Try struct {
	At     time.Time `json:"at"`
	Signal string    `json:"signal"`
	Reason string    `json:"reason,omitzero"`
}
