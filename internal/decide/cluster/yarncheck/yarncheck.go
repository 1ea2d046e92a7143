// Package yarncheck decides what would go wrong if elastic NodeManagers, the workers of a pool with a node label,
// joined a YARN cluster. It judges what others have read from the cluster.
//
// What YARN does was seen on Hadoop 3.5.0, unless a comment says otherwise.
package yarncheck

import (
	"cmp"
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// Input is what was read from a cluster, and how the pool would be.
type Input struct {
	Label string // of the pool
	Floor Size   // what a worker registers with
	User  string // as whom the pool asks, where Hadoop's authentication is "simple"; empty: nobody

	Managers  []Manager
	Settings  map[string]string // properties of the active ResourceManager, without those of capacity-scheduler.xml
	Scheduler Scheduler
	Labels    []model.NodeLabel
	Nodes     []Node // that the ResourceManager counts on: running, unhealthy and decommissioning ones
	Hosts     []Host
	Spark     map[string]string // properties of spark-defaults.conf; nil: nobody asks about Spark
	MapReduce map[string]string // properties of mapred-site.xml; nil: nobody asks about MapReduce
	Workers   map[string]string // properties of the workers' yarn-site.xml; nil: they are not known
	// Missing says why facts could not be read. They are empty then.
	Missing map[Fact]string
}

// Fact is a part of the input that can be missing.
type Fact string

// The facts. Queues are those of the CapacityScheduler.
const (
	FactManagers  Fact = "managers"
	FactSettings  Fact = "settings"
	FactScheduler Fact = "scheduler"
	FactQueues    Fact = "queues"
	FactLabels    Fact = "labels"
	FactNodes     Fact = "nodes"
	FactHosts     Fact = "hosts"
)

// Size is an amount of memory and CPU.
type Size = model.Size

// Manager is a ResourceManager.
type Manager struct {
	Address string `json:"address"` // of its web services
	State   string `json:"state"`   // ACTIVE or STANDBY; empty: it does not answer
	Version string `json:"version,omitempty"`
	Problem string `json:"problem,omitempty"` // why it does not answer
}

// Scheduler is that of the active ResourceManager.
type Scheduler struct {
	Kind string // such as capacityScheduler
	Root model.Queue
}

// Node is a NodeManager.
type Node struct {
	Host    string
	Label   string // empty: the default partition
	Running bool   // it takes containers
	Total   Size
}

// Host is what name services say about a host of a NodeManager.
type Host struct {
	Name      string
	Addresses []string // that the name resolves to
	Back      []string // names that the addresses resolve to
}

// Severity says how bad a finding is.
type Severity string

// The severities, worst first.
const (
	Error   Severity = "error"   // the pool does not work, or jobs are lost
	Warning Severity = "warning" // something goes wrong under circumstances
	Note    Severity = "note"    // nothing is wrong, but people should know
)

// Finding is something that people should know or change.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Where    []string `json:"where,omitempty"`    // queues, hosts or addresses; none: the whole cluster
	Property string   `json:"property,omitempty"` // whose value was found
	Value    string   `json:"value,omitempty"`
	What     string   `json:"what"`
	Why      string   `json:"why"` // it matters
	Fix      Fix      `json:"fix"`
}

// Fix is what to do about a finding.
type Fix struct {
	Property string `json:"property,omitempty"` // to set; <queue> stands for the path of a queue
	Value    string `json:"value,omitempty"`
	Do       string `json:"do,omitempty"` // in addition, or instead
}

// Unchecked is a check that was not made.
type Unchecked struct {
	Codes []Code `json:"codes"` // findings that the check could have had
	Why   string `json:"why"`
}

// Share is what one partition of the cluster has.
type Share struct {
	Label string `json:"label"` // empty: the default partition
	Nodes int    `json:"nodes"` // that run
	Total Size   `json:"total"`
}

// Report is the result of all checks.
type Report struct {
	Managers   []Manager   `json:"managers"`
	Partitions []Share     `json:"partitions"`
	Findings   []Finding   `json:"findings"` // worst first
	Unchecked  []Unchecked `json:"unchecked"`
}

// Bad returns how many errors and warnings there are.
func (r *Report) Bad() (errors, warnings int) {
	for _, f := range r.Findings {
		switch f.Severity {
		case Error:
			errors++
		case Warning:
			warnings++
		}
	}
	return errors, warnings
}

// check is a look at a part of the input.
type check struct {
	needs []Fact
	codes []Code // of the findings that it can have
	run   func(in *Input, to *findings)
}

// findings are what a check has found.
type findings struct {
	all     []Finding
	unknown string // why the check cannot tell; empty: it can
}

func (f *findings) add(one Finding) { f.all = append(f.all, one) }

// at adds a finding about queues or hosts, if there are any.
func (f *findings) at(where []string, one Finding) {
	if one.Where = where; len(where) > 0 {
		f.add(one)
	}
}

// checks lists everything that is checked.
func checks() []check {
	return []check{
		{[]Fact{FactManagers}, []Code{NoActiveRM, RMUnreachable}, managers},
		{[]Fact{FactManagers, FactSettings}, []Code{RMNotListed}, unlisted},
		{[]Fact{FactScheduler}, []Code{SchedulerNotCapacity}, scheduler},
		{[]Fact{FactQueues}, []Code{VCoresIgnored}, calculator},
		{[]Fact{FactSettings}, []Code{LabelsDisabled, LabelsNotCentralized}, labelling},
		{[]Fact{FactSettings}, []Code{LabelStoreTemporary, LabelStoreLocal}, labelStore},
		{[]Fact{FactLabels}, []Code{LabelMissing, LabelShared}, label},
		{[]Fact{FactSettings}, []Code{MinimumAboveFloor}, minimum},
		{[]Fact{FactQueues}, []Code{NoQueueForLabel, QueueHasNothing, QueueHasNoShare}, queues},
		{[]Fact{FactQueues}, []Code{QueueDefaultElsewhere, RESTIgnoresQueueDefault}, defaults},
		{[]Fact{FactQueues, FactSettings}, []Code{MastersOnLabel, MasterPercentZero}, masters},
		{[]Fact{FactQueues, FactSettings, FactLabels}, []Code{MasterLabelRefused}, masterLabel},
		{[]Fact{FactSettings, FactLabels}, []Code{MastersBorrowLabel}, borrowing},
		{[]Fact{FactSettings, FactNodes}, []Code{NoFixedNodes}, fixedNodes},
		{[]Fact{FactSettings}, []Code{RecoveryOff, RecoveryRestarts}, recovery},
		{[]Fact{FactSettings}, []Code{ExpiryLong}, expiry},
		{[]Fact{FactSettings}, []Code{NoExcludePath, ExcludePathNotXML, IncludePathSet}, hostLists},
		{[]Fact{FactSettings}, []Code{WebPortOpen, UserNotAdmin}, access},
		{[]Fact{FactHosts}, []Code{HostUnknown, HostOtherName}, hosts},
		{nil, []Code{LogsNotAggregated, LogsOnOwnDisk, LogsOnlyAtEnd}, logs},
		{nil, []Code{AuxServiceInvalid, AuxServicePort, AuxServiceMissing}, auxServices},
		{[]Fact{FactSettings}, []Code{ContainersShareUser}, executor},
		{nil, []Code{
			SparkKeepsNothing, SparkShuffleService, SparkNoFallback, SparkAllocationRefused, SparkAllocationHolds,
			SparkMasterOnLabel, SparkElsewhere,
		}, spark},
		{nil, []Code{
			ShuffleOneReplica, ShuffleRecomputes, ShuffleQuorum, ShuffleNoSpare, ShuffleServersUnknown,
			ShuffleStorageUnknown, ShuffleIncomplete, ShuffleSerializer, ShuffleLocalReader, ShuffleAllocation,
		}, shuffle},
	}
}

// Codes returns all codes, in the order of the checks.
func Codes() []Code {
	var all []Code
	for _, c := range checks() {
		all = append(all, c.codes...)
	}
	return all
}

// Check makes all checks that the facts allow.
func Check(in *Input) Report {
	r := Report{Managers: in.Managers, Partitions: shares(in), Findings: []Finding{}, Unchecked: []Unchecked{}}
	for _, c := range checks() {
		to := findings{unknown: in.missing(c.needs)}
		if to.unknown == "" {
			c.run(in, &to)
		}
		r.Findings = append(r.Findings, to.all...)
		if to.unknown == "" {
			continue
		}
		same := func(u Unchecked) bool { return u.Why == to.unknown }
		if i := slices.IndexFunc(r.Unchecked, same); i >= 0 {
			r.Unchecked[i].Codes = append(r.Unchecked[i].Codes, c.codes...)
		} else {
			r.Unchecked = append(r.Unchecked, Unchecked{slices.Clone(c.codes), to.unknown})
		}
	}
	order := []Severity{Error, Warning, Note}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	return r
}

// missing returns why one of these facts is not known; empty if all are.
func (in *Input) missing(needs []Fact) string {
	for _, fact := range needs {
		if why := in.Missing[fact]; why != "" {
			return why
		}
	}
	return ""
}

// shares returns what the partitions have: the default one, then that of the pool's label, then others by their name.
func shares(in *Input) []Share {
	if in.Missing[FactNodes] != "" {
		return []Share{}
	}
	all := []Share{{Label: ""}, {Label: in.Label}}
	for _, n := range in.Nodes {
		i := slices.IndexFunc(all, func(s Share) bool { return s.Label == n.Label })
		if i < 0 {
			i, all = len(all), append(all, Share{Label: n.Label})
		}
		if n.Running {
			all[i].Nodes++
			all[i].Total = all[i].Total.Plus(n.Total)
		}
	}
	slices.SortFunc(all[2:], func(a, b Share) int { return cmp.Compare(a.Label, b.Label) })
	return all
}
