package model

// NodeManager is a NodeManager of YARN as the ResourceManager shows it.
type NodeManager struct {
	ID          string // host:port
	State       string // as the ResourceManager calls it, such as RUNNING
	Label       string
	Total, Used Size // together: just after a resize, a ResourceManager can show that nothing is used
	Containers  int
	// Opportunistic is how many containers run without a right to their resources, or wait in the NodeManager's queue.
	// They are in no other of these numbers.
	Opportunistic int
	// Listed is how many containers run by the account of the NodeManager itself. A graceful decommission is over at once
	// if the NodeManager's next heartbeat has none, and kills those that were allocated and have not started (seen in
	// Hadoop 3.5.0).
	Listed int
	// Unlisted means that the NodeManager did not say it.
	Unlisted bool
	Health   string // what it says about itself, if it is not well
}

// The states of NodeManagers that live. All others are of those that ended, or have not registered.
const (
	NodeManagerRunning         = "RUNNING"
	NodeManagerUnhealthy       = "UNHEALTHY"
	NodeManagerDecommissioning = "DECOMMISSIONING"
)

// Lives reports whether the NodeManager is one that lives.
func (m *NodeManager) Lives() bool {
	return m.State == NodeManagerRunning || m.State == NodeManagerUnhealthy || m.State == NodeManagerDecommissioning
}
