package model

// NodeLabel is a node label of a YARN cluster. Nodes with the same label are a partition; those without are the default
// one.
type NodeLabel struct {
	Name string `json:"name"`
	// Exclusive labels are only for containers that ask for them. Idle resources of others are lent to containers that
	// ask for the default partition.
	Exclusive bool `json:"exclusivity"`
}

// Queue is a queue of the CapacityScheduler.
type Queue struct {
	Path   string   // such as root.default
	State  string   // RUNNING, DRAINING or STOPPED; empty: not known
	Labels []string // node labels that its applications may ask for; "*": all. Of the root queue, none is shown
	// DefaultLabel is the node label of applications whose client says nothing about labels; empty: the default
	// partition. The web service of submissions always says something.
	DefaultLabel string
	// ByAmount is set if its capacities are amounts of memory and vcores. The percentages of a partition without nodes
	// are 0 then.
	ByAmount   bool
	Partitions []Partition
	Queues     []Queue
}

// Running reports whether the queue takes applications.
func (q *Queue) Running() bool { return q.State == "" || q.State == "RUNNING" }

// Partition is what a queue may use, and uses, of the nodes with one label. A queue that may use a label and has no
// capacity of it configured can lack the partition.
type Partition struct {
	Label string // empty: the default partition
	Used  Size
	// Capacity is guaranteed, and MaxCapacity is the most that the queue can have, in percent of the whole partition.
	Capacity, MaxCapacity float64
	Min                   Size // Capacity by the nodes that the partition has now
	// MasterPercent is how much of what the queue can have masters may take. However small it is, a first one starts.
	MasterPercent float64
	MasterLimit   Size // the same by the nodes that the partition has now; zero if the queue has queues of its own
}
