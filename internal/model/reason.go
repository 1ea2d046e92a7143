package model

import (
	"fmt"
	"strings"
)

// Code says in one word why something was decided. Each appears in a golden case and in docs/reasons.md.
type Code string

// Why a value was chosen.
const (
	Weighted         Code = "Weighted"         // the pod's annotation asks for this weight
	WeightedByPolicy Code = "WeightedByPolicy" // a rule of the policy gives the pod this weight
	WeightClamped    Code = "WeightClamped"    // the weight asked for is above what the policy allows in this namespace
	WeightCapped     Code = "WeightCapped"     // more would take CPU that Guaranteed pods were promised
	AgentFirst       Code = "AgentFirst"       // the agent's own pod must run when the node is busiest
	CriticalKept     Code = "CriticalKept"     // a system-critical pod keeps its fraction of its class while others grow
	SumOfPods        Code = "SumOfPods"        // a QoS class weighs what its pods weigh together
	QuotaLifted      Code = "QuotaLifted"      // the pod asks to be limited by its weight only
	KubeletValue     Code = "KubeletValue"     // given back: what the kubelet computes from the pod's current spec
	RecordedValue    Code = "RecordedValue"    // given back: the newest value that somebody else had written
	LastKnown        Code = "LastKnown"        // the pods are not known yet: the last value decided stays
	IdleGroup        Code = "IdleGroup"        // held: cpu.idle is set, where the kernel refuses a weight
	RejectedByKernel Code = "RejectedByKernel" // held: the kernel refused this value and nothing has changed since
	ForeignWriter    Code = "ForeignWriter"    // held: another writer fights for this file; answered once a second
	BadAnnotation    Code = "BadAnnotation"    // the annotation's value cannot be used; the pod keeps its defaults
	BothSpellings    Code = "BothSpellings"    // two spellings of one annotation stand on the pod; ours wins
	NoPodCgroups     Code = "NoPodCgroups"     // this node has no cgroup per pod, so there is nothing to weight
	ObserveOnly      Code = "ObserveOnly"      // held: the policy decides and reports but writes nothing
	ReadOnlyMount    Code = "ReadOnlyMount"    // held: the cgroup file system is mounted read-only
)

// Unit is the unit of an operand.
type Unit string

// The units that operands carry.
const (
	UnitShares Unit = "shares"
	UnitMilli  Unit = "mCPU"
	UnitTimes  Unit = "x/1000" // a factor in thousandths
)

// Operand is one named number that a decision was computed from.
type Operand struct {
	Name  string
	Value int64
	Unit  Unit
}

// String returns the operand as an operator reads it: name=value and the unit.
func (o Operand) String() string {
	if o.Unit == UnitTimes {
		return fmt.Sprintf("%s=%gx", o.Name, float64(o.Value)/1000)
	}
	return fmt.Sprintf("%s=%d%s", o.Name, o.Value, o.Unit)
}

// Reason is why a value is what it is: a code, the numbers it was computed from and, where a person wrote something that
// cannot be used, their words. The zero value means that there is no reason to give.
type Reason struct {
	Code     Code
	Operands []Operand
	Key      string // of the annotation or field in question
	Text     string // its value, as written, cut to a sane length
	Fix      string // what to write instead
}

// String returns the reason in one line, for transcripts and explanations.
func (r Reason) String() string {
	var b strings.Builder
	b.WriteString(string(r.Code))
	for _, o := range r.Operands {
		b.WriteByte(' ')
		b.WriteString(o.String())
	}
	if r.Key != "" {
		fmt.Fprintf(&b, " %s: %q", r.Key, r.Text)
	}
	if r.Fix != "" {
		b.WriteString(": ")
		b.WriteString(r.Fix)
	}
	return b.String()
}
