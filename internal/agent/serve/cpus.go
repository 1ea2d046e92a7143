package serve

import (
	"fmt"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// CPUMap is the assignment of a node's CPUs. The agent serves it as GET /cpus on its local address.
//
// A CPU may be in several pools: pods without CPUs of their own run on the homes of pods of mode share, too. An
// exclusive CPU is in no other pool.
type CPUMap struct {
	Topology *model.Topology
	// The pools.
	Reserved  model.CPUSet // kept for the kubelet and the system: never one pod's alone
	Exclusive model.CPUSet // one container's alone
	Share     model.CPUSet // the home of a container, on which others may run too
	Shared    model.CPUSet // where containers without CPUs of their own run
	Pods      []CPUPod     // ordered by namespace, name and container
	Notices   []string     // requests that could not be met, and why
}

// CPUPod is a container with CPUs of its own.
type CPUPod struct {
	Namespace string
	Name      string // of the pod
	Container string
	Mode      model.CPUMode
	CPUs      model.CPUSet
}

// CPUPlan is the moves if a pod had another mode. The agent serves it as GET /cpus?plan=REQUEST, with a [CPURequest],
// and moves nothing.
type CPUPlan struct {
	Moves   []CPUMove // ordered by namespace, name and container; none: no container moves
	Refusal string    // why the pod would not get its CPUs; "": it would
}

// CPUMove is a container that would run on other CPUs than now.
type CPUMove struct {
	Namespace string
	Name      string // of the pod
	Container string
	From      model.CPUSet
	To        model.CPUSet
	Why       string
}

// CPURequest is a plan request: a pod, and the mode that it might have.
type CPURequest struct {
	Namespace string
	Name      string // of the pod
	Mode      model.CPUMode
}

// ParseCPURequest parses NAMESPACE/POD=MODE.
func ParseCPURequest(text string) (CPURequest, error) {
	pod, mode, hasMode := strings.Cut(text, "=")
	namespace, name, hasName := strings.Cut(pod, "/")
	if !hasMode || !hasName || namespace == "" || name == "" || strings.Contains(name, "/") {
		return CPURequest{}, fmt.Errorf("%q: write NAMESPACE/POD=MODE, such as shop/web-0=exclusive", text)
	}
	switch m := model.CPUMode(mode); m {
	case model.CPUNone, model.CPUShare, model.CPUExclusive:
		return CPURequest{Namespace: namespace, Name: name, Mode: m}, nil
	}
	return CPURequest{}, fmt.Errorf("%q: there is no mode %q; there are %s, %s and %s", text, mode, model.CPUExclusive,
		model.CPUShare, model.CPUNone)
}

// String returns the request as [ParseCPURequest] reads it.
func (r CPURequest) String() string { return r.Namespace + "/" + r.Name + "=" + string(r.Mode) }
