package place

import (
	"fmt"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Code is why a node is refused, or why its report does not count, in one word. docs/scheduler.md explains each.
type Code string

// Reasons to refuse a node.
const (
	WeightUnmet   Code = "WeightUnmet"   // the pod would get less CPU than its weight lets it expect
	WeightDiluted Code = "WeightDiluted" // another pod with a weight would get less than it expects
	AgentGone     Code = "AgentGone"     // nobody would hold the batch pod down
	OfferRevoked  Code = "OfferRevoked"  // the manager has withdrawn the node's offer
	NodeHot       Code = "NodeHot"       // the node takes no batch at present
	WindowEnds    Code = "WindowEnds"    // the policy's window ends soon, or is closed
	CPUsTooFew    Code = "CPUsTooFew"    // fewer whole CPUs are free than the pod needs
	CoresTooFew   Code = "CoresTooFew"   // enough CPUs are free, but whole cores do not add up to them
	CPUsKept      Code = "CPUsKept"      // enough CPUs are free, but the node keeps some shared
)

// Reasons why a report does not count.
const (
	ReportMissing    Code = "ReportMissing"    // there is none
	ReportOld        Code = "ReportOld"        // it has not changed for too long
	ReportOrphaned   Code = "ReportOrphaned"   // its agent is gone
	ReportUnreadable Code = "ReportUnreadable" // it is of another version
	ReportEmpty      Code = "ReportEmpty"      // nothing was measured yet
)

// words are the reasons for operators; operands stand in braces.
var words = map[Code]string{
	WeightUnmet:      "its weight would get it {got} of {wants} here, with {weights} of weights on {cpus}",
	WeightDiluted:    "a pod here would get {got} of the {wants} of its weight, with {weights} of weights on {cpus}",
	AgentGone:        "no agent has held batch down here for {gone}, more than {grace}",
	OfferRevoked:     "the manager has withdrawn the offer of batch resources",
	NodeHot:          "the node is hot ({why}) and takes no batch",
	WindowEnds:       "the window for batch is {why}",
	CPUsTooFew:       "{free} of the {wants} needed are free",
	CoresTooFew:      "{free} are free in whole cores, which do not add up to the {wants} needed",
	CPUsKept:         "{free} are free and {most} of them can be exclusive, {wants} are needed",
	ReportMissing:    "the node has no report",
	ReportOld:        "the report has not changed for {age}, more than {most}",
	ReportOrphaned:   "the agent has been gone for {gone}, more than {grace}",
	ReportUnreadable: "the report is of another version",
	ReportEmpty:      "the report has no measurements yet",
}

// Reason is why a node was refused or why its report does not count, with the numbers. The zero value means neither.
type Reason struct {
	Code     Code
	Operands []model.Operand
	Why      string // word of the report, such as MemoryExhausted
}

// String returns the reason in words.
func (r Reason) String() string {
	text := words[r.Code]
	for _, o := range r.Operands {
		text = strings.ReplaceAll(text, "{"+o.Name+"}", amount(o))
	}
	return strings.ReplaceAll(text, "{why}", r.Why)
}

func reason(code Code, operands ...model.Operand) Reason {
	return Reason{Code: code, Operands: operands}
}

func seconds(name string, d time.Duration) model.Operand {
	return model.Operand{Name: name, Value: int64(d / time.Second), Unit: model.UnitSeconds}
}

func milli(name string, value int64) model.Operand {
	return model.Operand{Name: name, Value: value, Unit: model.UnitMilli}
}

func cpus(name string, n int) model.Operand {
	return model.Operand{Name: name, Value: int64(n), Unit: model.UnitCPUs}
}

// amount writes a number for people. CPUs have one decimal: an event counts the nodes with equal reasons, and thousands
// of nodes with slightly different numbers would not fit.
func amount(o model.Operand) string {
	switch o.Unit {
	case model.UnitMilli:
		return fmt.Sprintf("%.1f CPUs", float64(o.Value)/1000)
	case model.UnitSeconds:
		return (time.Duration(o.Value) * time.Second).String()
	}
	return fmt.Sprintf("%d %s", o.Value, o.Unit)
}
