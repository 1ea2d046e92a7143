package model

import (
	"fmt"
	"time"
)

// ClusterPolicy is a policy of the cluster: its content, and where and when it applies.
type ClusterPolicy struct {
	Name       string
	Generation int64    // of the object, which grows with each change; 0: it is none
	Priority   int64    // of the policies that select a node the highest governs it
	Nodes      Selector // by the labels of nodes
	Rollout    int64    // percent of the selected nodes on which the policy holds, 0 to 100
	Windows    []Window // when slack is sold; none: always
	Paused     bool     // nodes follow it as if its mode was Disabled; new batch pods are admitted as before, and wait
	Policy     Policy
}

// Defaults of a policy.
const (
	DefaultRollout      = 100 // percent of the selected nodes: all of them
	DefaultEvictPerHour = 6   // batch pods, where they may be evicted at all
)

// Window is a time of each day. It begins when the clock of its zone reads Start or, if that is skipped, later, and
// ends when the clock first reads End. If clocks are put back over either, the shorter of the two possible windows
// counts; a time that clocks skip is passed when they are put forward.
type Window struct {
	Name        string
	Start       int // minutes after midnight, 0 to 1439
	End         int // likewise; before Start: on the next day; equal to it: the window never ends
	Zone        TimeZone
	DrainBefore time.Duration // before the end, in which nothing new is sold; shorter than the window
}

// Always reports whether the window never ends.
func (w *Window) Always() bool { return w.Start == w.End }

// Length returns the length of the window on a day without a change of clocks; 0 if it never ends.
func (w *Window) Length() time.Duration {
	const day = 24 * 60
	return time.Duration((w.End-w.Start+day)%day) * time.Minute
}

// SellState is whether windows allow selling at a moment.
type SellState string

// The states. The zero value means that windows were not evaluated.
const (
	SellOpen     SellState = "Open"
	SellDraining SellState = "Draining" // nothing new is sold
	SellClosed   SellState = "Closed"   // nothing is sold
)

// TimeZone is a named time zone. The zero value is UTC.
type TimeZone struct{ location *time.Location }

// LoadTimeZone returns the time zone of a name, such as Asia/Shanghai, from the data of the machine, or else from the
// binary's own. "Local" is no name: it differs between machines.
func LoadTimeZone(name string) (TimeZone, error) {
	if name == "" || name == "Local" {
		return TimeZone{}, fmt.Errorf("%q is not the name of a time zone", name)
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return TimeZone{}, fmt.Errorf("loading a time zone: %w", err)
	}
	return TimeZone{location}, nil
}

// Location returns the zone's rules.
func (z TimeZone) Location() *time.Location {
	if z.location == nil {
		return time.UTC
	}
	return z.location
}

// String returns the zone's name.
func (z TimeZone) String() string { return z.Location().String() }

// MarshalText writes the zone's name, from which [TimeZone.UnmarshalText] loads it again: a journal contains names, not
// rules.
func (z TimeZone) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// UnmarshalText loads the zone of a name.
func (z *TimeZone) UnmarshalText(name []byte) error {
	zone, err := LoadTimeZone(string(name))
	*z = zone
	return err
}
