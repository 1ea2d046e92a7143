package pools

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
)

// readSize reads what the pod of a NodeManager requests, its limits, and the size with which its NodeManager starts.
func (r *podRow) readSize(p *corev1.Pod) {
	var batch v1alpha1.BatchResources
	_ = json.Unmarshal([]byte(p.Annotations[v1alpha1.AnnotationBatchResources]), &batch) // else there are no limits
	add := func(c *corev1.Container) {
		r.request = r.request.Plus(kube.BatchRequest(c))
		limit := batch.Containers[c.Name].Limit
		r.limit = r.limit.Plus(model.Amount{CPU: limit.CPU, Memory: limit.Memory})
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == hadoop.GuardContainer {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if c.Name != v1alpha1.WorkerContainer {
			continue
		}
		add(c)
		for _, e := range c.Env {
			n, _ := strconv.ParseInt(e.Value, 10, 64)
			switch e.Name {
			case hadoop.MemoryVariable:
				r.start.MemoryMiB = n
			case hadoop.VCoresVariable:
				r.start.VCores = n
			}
		}
	}
}

// bounds returns what a pod requests for containers, and what its limits leave for them. A pod is as large as it was
// made, whatever the spec of its pool says by now. Nobody but the pod's author wrote the variables, so they count for
// no more than the pod requests.
func (r *round) bounds(p *podRow) (floor, ceiling pool.Size) {
	if p.start == (pool.Size{}) || p.request == (model.Amount{}) {
		return floor, ceiling
	}
	perCPU := r.read.VCoresPerCPU
	floor = pool.Size{
		MemoryMiB: min(p.start.MemoryMiB, yarn.MiB(p.request.Memory)),
		VCores:    min(p.start.VCores, yarn.VCores(p.request.CPU, perCPU)),
	}
	ceiling = r.in.Settings.Ceiling
	if p.limit.Memory > 0 { // the overhead is what the pod requests beyond the floor
		ceiling.MemoryMiB = max(yarn.MiB(p.limit.Memory-p.request.Memory)+floor.MemoryMiB, floor.MemoryMiB)
	}
	if p.limit.CPU > 0 {
		ceiling.VCores = max(yarn.VCores(p.limit.CPU-r.read.Overhead.CPU, perCPU), floor.VCores)
	}
	return floor, ceiling
}

// template returns a short text that changes when the spec of the pool leads to different pods. Fields of a single
// worker, and fields that only the ResourceManager receives, do not change it.
func (r *round) template() string {
	if r.kindOfPod != "" {
		return r.kindOfPod
	}
	y, id := r.p.Spec.YARN.DeepCopy(), r.p.Spec.Identity
	id.Addresses, id.CoolDown = nil, nil
	y.Label, y.Admins, y.AuthSecret, y.ExcludeFile = v1alpha1.NodeLabelSpec{}, nil, nil, ""
	y.Shuffle = nil
	content := encode([]any{
		y, id, r.p.Spec.Template, r.read.Floor, r.read.Ceiling, r.read.Overhead, r.read.VCoresPerCPU,
		r.read.Drain, r.graceful(),
	})
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(content)) // never fails
	r.kindOfPod = fmt.Sprintf("%016x", sum.Sum64())
	return r.kindOfPod
}

// allowance returns the annotation for the guard of a worker after its next step. What is not known stays as it is.
func (r *round) allowance(pl *place) string {
	size, until, known := pool.Allowed(&r.in, pl.worker, &pl.step)
	if !pl.pod.guarded || !known {
		return pl.pod.allowance
	}
	return allowanceText(size, until)
}

// allowanceText returns an allowance as the annotation has it.
func allowanceText(size pool.Size, until time.Time) string {
	return encode(struct {
		pool.Size
		Until time.Time `json:"until,omitzero"`
	}{size, until.UTC()})
}
