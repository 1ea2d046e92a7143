// Package shed decides which container of a NodeManager should leave when the worker must shrink, and how it is told.
//
// The manager tells the ResourceManager a smaller total with a deadline, and the ResourceManager kills what does not
// fit at that deadline. This rule does what is left to do when nobody else does, in the most polite way that time
// allows:
//
//  1. Until the deadline, executors that take Spark's decommission signal get it, the youngest first, until the rest
//     fits.
//  2. At the deadline the ResourceManager kills, and the rule waits for ten seconds.
//  3. Then one container at a time gets SIGTERM and, if it stays, SIGKILL. After each, everything is measured again.
//
// Memory that nobody can reclaim and that reaches the hard mark of the limit is answered at once as in step 3, with
// shorter waits: next the kernel would kill, and it might choose the NodeManager.
//
// Opportunistic containers leave before guaranteed ones, the youngest first, and masters of applications last. Old
// readings kill nobody. The rule never lets anything grow.
package shed

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Settings are those of the pool.
type Settings struct {
	// KillsPerMinute is how many containers may be ended within a minute, except at the hard mark. With 0, none is ended
	// except there.
	KillsPerMinute int
	// HardPercent is the hard mark: the part of the memory limit, in percent, that unreclaimable memory may not reach.
	HardPercent int64
}

// DefaultSettings returns the settings of a pool that says nothing.
func DefaultSettings() Settings { return Settings{KillsPerMinute: 10, HardPercent: 95} }

// Allowance is what the containers of a worker may use together, as the manager wrote it last.
type Allowance struct {
	MemoryMiB int64
	VCores    int64
	// Until is the deadline that the ResourceManager was told; zero: everything fits.
	Until time.Time
}

// Memory is the memory of the NodeManager's cgroup, which its containers share, in bytes.
type Memory struct {
	At          time.Time // of the reading; zero: there was none
	Used        int64
	Reclaimable int64 // of Used: page cache and kernel caches, which the kernel takes back before it kills
	Limit       int64 // 0: none
}

// CPU is the CPU of the NodeManager's cgroup between two readings.
type CPU struct {
	At        time.Time // of the second reading; zero: there were no two
	Milli     int64     // used, in mCPU
	Limit     int64     // in mCPU; 0: none
	Throttled int64     // part of the periods that the limit throttled, in thousandths
}

// Container is a container of the NodeManager.
type Container struct {
	ID string
	// Known means that the NodeManager lists it, or listed it before. Otherwise its id is only written in the environment
	// of processes, while the NodeManager does not answer: nothing else is known of it, and it is ended last.
	Known bool
	// Master is the master of an application.
	Master        bool
	Opportunistic bool
	MemoryMiB     int64 // asked for
	VCores        int64
	// Holds means that the NodeManager counts what it asked for as in use.
	Holds bool
	// Ended means that it has ended by the account of the NodeManager. Processes of it are left over.
	Ended bool
	// Started is when its first process started; zero: it was never seen with a process.
	Started   time.Time
	Processes int // that run now
	// Decommissions means that one of its processes is a Spark executor that catches the decommission signal.
	Decommissions bool
	// Remote means that its processes are another user's, which are not seen, and that the ResourceManager can be asked to
	// have it ended. Processes is 0 then.
	Remote bool
	// Refused is when the kernel or the ResourceManager last refused to deliver a signal to it; zero: never.
	Refused time.Time
}

// Input is what was observed.
type Input struct {
	Now       time.Time
	Settings  Settings
	Allowance Allowance // the zero value: none was ever written
	Memory    Memory
	CPU       CPU
	Listed    time.Time   // when the NodeManager listed its containers last; zero: never
	Scanned   time.Time   // when processes were looked for last; zero: never
	Outcome   Outcome     // of the action of the round before
	Container []Container // in any order
}

// Outcome is what became of an action.
type Outcome struct {
	Container string // "": there was no action
	// Delivered is how many processes got the signal. With 0 the action counts as not taken.
	Delivered int
}

// Signal is a signal for the processes of a container.
type Signal string

// The signals, from the most polite one.
const (
	None         Signal = ""
	Decommission Signal = "PWR" // to executors that catch it: they move their data, take no new tasks, and end
	Terminate    Signal = "TERM"
	Kill         Signal = "KILL"
)

// Decision is what to do now.
type Decision struct {
	Container string // the container that gets Signal
	Signal    Signal // None: no container gets one
	// Reason is why; without a signal, what is waited for. The zero value means that nothing is over.
	Reason model.Reason
	// Closely means that the next round needs a new list of the NodeManager and a new look at processes.
	Closely bool
}

// State is the state between rounds.
type State struct {
	Until time.Time // the deadline that the next two are about
	Since time.Time // when it was first seen
	// Met means that everything fitted after it was set. Then it is over: what comes later was allocated by a
	// ResourceManager that gives the worker more, and the allowance is only late.
	Met   bool
	Tried []Tried // ordered by container; those that are gone are dropped
	// Ended are the times of the last minute at which containers were first told to end. Those at the hard mark count too.
	Ended []time.Time
	Last  time.Time // of the last SIGTERM or SIGKILL
}

// Tried is what was tried for one container.
type Tried struct {
	Container      string
	Decommissioned time.Time
	Terminated     time.Time
	Killed         time.Time
}
