package serve

import (
	"fmt"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// CPUMap is who may run on which CPU of a node. The agent serves it as GET /cpus on its local address.
//
// A CPU may be in several pools: the homes of pods of mode share are also where pods without CPUs of their own run.
// None that is exclusive is in another.
type CPUMap struct {
	Topology *model.Topology
	// The pools.
	Reserved  model.CPUSet // kept for the kubelet and the system: never one pod's alone
	Exclusive model.CPUSet // one container's alone
	Share     model.CPUSet // the home of a container, on which others may run too
	Shared    model.CPUSet // where containers without CPUs of their own run
	Pods      []CPUPod     // ordered by namespace, name and container
	Notices   []string     // what could not be given as it was asked for, and why
}

// CPUPod is a container with CPUs of its own.
type CPUPod struct {
	Namespace string
	Name      string // of the pod
	Container string
	Mode      model.CPUMode
	CPUs      model.CPUSet
}

// CPUPlan is what would move if a pod asked for another mode. The agent serves it as GET /cpus?plan=REQUEST, where the
// request is written as [CPURequest] says, and moves nothing.
type CPUPlan struct {
	Moves   []CPUMove // ordered by namespace, name and container; none: everybody stays
	Refusal string    // why the pod would not get what it asks for; "": it would
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

// CPURequest is what to plan: a pod, and the mode that it might ask for.
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
