package yarn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// NM is a client of the web services of NodeManagers, which can only be read. Its methods may be called concurrently.
type NM struct{ web }

// NewNM returns a client of NodeManagers.
func NewNM(o HTTPOptions) (*NM, error) { return newNM(o, newWeb) }

// NewSimpleNM returns a client of NodeManagers that never logs in, for programs that are to take little memory.
func NewSimpleNM(o HTTPOptions) (*NM, error) { return newNM(o, simpleWeb) }

func newNM(o HTTPOptions, open func(HTTPOptions) (web, error)) (*NM, error) {
	web, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("making a client of NodeManagers: %w", err)
	}
	return &NM{web}, nil
}

// NMInfo describes a NodeManager by its own account.
type NMInfo struct {
	ID string // host:port
	// Total is the total that the NodeManager knows: its configuration's until the first heartbeat after a resize.
	Total Resource
}

// Info returns the description of a NodeManager with this base address, such as http://nm1.example:8042.
func (c *NM) Info(ctx context.Context, base string) (NMInfo, error) {
	var answer struct {
		Info struct {
			ID     string `json:"id"`
			Memory number `json:"totalPmemAllocatedContainersMB"`
			VCores number `json:"totalVCoresAllocatedContainers"`
		} `json:"nodeInfo"`
	}
	if err := c.do(ctx, base, request{method: http.MethodGet, path: "/ws/v1/node"}, &answer); err != nil {
		return NMInfo{}, err
	}
	i := answer.Info
	if i.ID == "" {
		return NMInfo{}, errors.New("the NodeManager at " + base + " does not say its id")
	}
	return NMInfo{i.ID, Resource{MemoryMiB: int64(i.Memory), VCores: int64(i.VCores)}}, nil
}

// ExecutionType says whether a container has a right to its resources.
type ExecutionType string

// The execution types.
const (
	Guaranteed    ExecutionType = "GUARANTEED"
	Opportunistic ExecutionType = "OPPORTUNISTIC" // waits in the NodeManager's queue, and is killed first
)

// ContainerRunning is the state of a container whose process has started and not ended.
const ContainerRunning = "RUNNING"

// Container is a container that a NodeManager knows.
type Container struct {
	ID            string // container_…_APP_ATTEMPT_NUMBER; the number of an application's master is 000001
	State         string // such as NEW, LOCALIZING, [ContainerRunning], DONE
	ExitCode      int    // -1000 before it has ended
	Diagnostics   string
	User          string
	Size          Resource
	ExecutionType ExecutionType
}

// Ended reports whether the state is one after the container's end.
func (c *Container) Ended() bool {
	switch c.State {
	case "LOCALIZATION_FAILED", "EXITED_WITH_SUCCESS", "EXITED_WITH_FAILURE", "CONTAINER_CLEANEDUP_AFTER_KILL",
		"CONTAINER_RESOURCES_CLEANINGUP", "DONE", "COMPLETE":
		return true
	}
	return false
}

// Exit codes of containers that YARN ended (ContainerExitStatus of Hadoop 3.5.0).
const (
	ExitAborted          = -100 // its NodeManager was lost, or it was not needed any more
	ExitPreempted        = -102
	ExitVirtualMemory    = -103 // it exceeded its virtual memory
	ExitMemory           = -104 // it exceeded its memory
	ExitByMaster         = -105 // its application's master ended it
	ExitByRM             = -106 // the ResourceManager ended it
	ExitAfterApplication = -107 // its application has ended
	ExitByScheduler      = -108 // the NodeManager needed room for guaranteed containers
)

// Wanted reports whether a container that has ended did so by itself without an error, or because its application
// wanted it.
func (c *Container) Wanted() bool {
	return c.ExitCode == 0 || c.ExitCode == ExitByMaster || c.ExitCode == ExitAfterApplication
}

// containerJSON is a container as a NodeManager shows it.
type containerJSON struct {
	ID            string        `json:"id"`
	State         string        `json:"state"`
	ExitCode      number        `json:"exitCode"`
	Diagnostics   string        `json:"diagnostics"`
	User          string        `json:"user"`
	Memory        number        `json:"totalMemoryNeededMB"`
	VCores        number        `json:"totalVCoresNeeded"`
	ExecutionType ExecutionType `json:"executionType"`
}

// Containers returns the containers of a NodeManager with this base address, such as http://nm1.example:8042. More than
// 10,000 are an error.
func (c *NM) Containers(ctx context.Context, base string) ([]Container, error) {
	var containers []Container
	if err := c.EachContainer(ctx, base, func(c Container) { containers = append(containers, c) }); err != nil {
		return nil, err
	}
	return containers, nil
}

// EachContainer calls a function with each container of a NodeManager, and keeps none. After an error, the function may
// have been called with some.
func (c *NM) EachContainer(ctx context.Context, base string, each func(Container)) error {
	r := request{method: http.MethodGet, path: "/ws/v1/node/containers"}
	all := listing{path: []string{"containers", "container"}, most: maxContainers, without: "containerLogFiles"}
	return c.list(ctx, base, r, all, func(decode func(any) error) error {
		var j containerJSON
		if err := decode(&j); err != nil {
			return err
		}
		if j.ID == "" {
			return errors.New("the NodeManager at " + base + " lists a container without an id")
		}
		each(Container{
			ID: j.ID, State: j.State, ExitCode: int(j.ExitCode), Diagnostics: cut(j.Diagnostics), User: j.User,
			Size: Resource{MemoryMiB: int64(j.Memory), VCores: int64(j.VCores)}, ExecutionType: j.ExecutionType,
		})
		return nil
	})
}

// ContainerSignal is a signal to a container by the name that the ResourceManager has for it.
type ContainerSignal string

// The signals that end a container.
const (
	GracefulShutdown ContainerSignal = "GRACEFUL_SHUTDOWN" // SIGTERM
	ForcefulShutdown ContainerSignal = "FORCEFUL_SHUTDOWN" // SIGKILL
)

// SignalContainer requests a signal to a container. The NodeManager receives the request with its next heartbeat, and
// has its container executor signal the processes. No answer says whether it did. The caller must be in
// yarn.admin.acl, if yarn.acl.enable is true. A container that does not run is answered with status 500.
func (c *RM) SignalContainer(ctx context.Context, id string, signal ContainerSignal) error {
	return c.Do(ctx, http.MethodPost, "/containers/"+url.PathEscape(id)+"/signal/"+string(signal), nil, nil)
}
