package experiment

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// pod is one pod of an experiment, with one container.
type pod struct {
	name         string
	qos          model.QoSClass
	requestMilli int64
	batchMilli   int64         // of batch CPU that it asks for; it is labelled as batch then, and BestEffort; 0: it is no batch pod
	limitMilli   int64         // CPU limit of a pod that is not Guaranteed; 0: it has none
	memory       int64         // in bytes, that it requests, or of batch memory asks for; 0: none
	oomScore     int           // that its processes start with
	shares       int64         // that its annotation asks for; 0: it has none
	cpus         model.CPUMode // that its annotation asks for; "": it has none
	threads      int           // of its load
	roams        bool          // its load runs on any CPU that it may, and is not dealt out evenly
	lasts        bool          // a real kubelet makes it once for all runs
	group, inner string        // cgroups of the pod and of its container, if a real kubelet made them
}

// uid returns a UID as an API server would give it, always the same for a name.
func (p *pod) uid() string {
	h := p.hash()
	return strings.Join([]string{h[:8], h[8:12], "4" + h[13:16], "8" + h[17:20], h[20:32]}, "-")
}

// hash is also the id of the pod's container.
func (p *pod) hash() string {
	sum := sha256.Sum256([]byte(p.name))
	return hex.EncodeToString(sum[:])
}

// kubelet stands in for the kubelet, where there is no [Node]: it makes the directories that the kubelet makes and writes the
// weights that the kubelet writes, at the moments when the kubelet does.
type kubelet struct {
	box       *sandbox
	layout    cgroup.Layout
	manifests string // directory in which the agent finds the pods
	milli     int64  // the node's allocatable CPU
	burstable int64  // requests of the Burstable pods
}

// start makes the directories that all pods stand in.
func (k *kubelet) start() error {
	k.layout = cgroup.Layout{Driver: cgroup.Cgroupfs, Root: k.box.name + "/kubepods"}
	// kubepods itself weighs against the rest of the machine what it does on a node, but our cgroup around it at least eight
	// times what two CPUs would: the weights in it are to be measured, not what else goes on. Measured beside compilers that
	// took half of two CPUs: at 2048 a ratio of 2.06 and repairs of 150 ms, at 16384 2.02 and 9 ms.
	if err := k.write(k.box.name, max(16*model.SharesPerCPU, model.MilliCPUToShares(k.milli))); err != nil {
		return err
	}
	for _, q := range []model.QoSClass{model.Guaranteed, model.Burstable, model.BestEffort} {
		if err := k.box.mkdir(k.layout.Class(q)); err != nil {
			return err
		}
	}
	if err := k.write(k.layout.Root, model.MilliCPUToShares(k.milli)); err != nil {
		return err
	}
	if err := k.write(k.layout.Class(model.BestEffort), model.MinShares); err != nil {
		return err
	}
	return k.writeBurstable()
}

// manifest returns the pod as its user wrote it.
func (p *pod) manifest() ([]byte, error) {
	var text bytes.Buffer
	err := manifest.Execute(&text, map[string]any{
		"Name": p.name, "UID": p.uid(), "Key": v1alpha1.AnnotationCPUShare, "Shares": p.shares, "CPU": p.requestMilli,
		"Guaranteed": p.qos == model.Guaranteed, "Quota": v1alpha1.AnnotationCPUQuota,
		"Manager": v1alpha1.AnnotationCPUManager, "CPUs": p.cpus, "ID": p.hash(), "Limit": p.limitMilli,
		"Batch": p.batchMilli, "Label": v1alpha1.LabelQoS, "BE": model.ClassBE, "BatchCPU": v1alpha1.ResourceBatchCPU,
		"Memory": p.memory, "BatchMemory": v1alpha1.ResourceBatchMemory,
	})
	if err != nil {
		return nil, fmt.Errorf("composing the manifest of pod %s: %w", p.name, err)
	}
	return text.Bytes(), nil
}

// announce tells the agent of a pod, as the API server does some time before the kubelet runs it.
func (k *kubelet) announce(p *pod) error {
	text, err := p.manifest()
	if err != nil {
		return err
	}
	// Renamed into place, so that the agent never sees half of it.
	file := filepath.Join(k.manifests, p.name+".yaml")
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return fmt.Errorf("writing the manifest of pod %s: %w", p.name, err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("writing the manifest of pod %s: %w", p.name, err)
	}
	return nil
}

// run makes the cgroups of a pod and its container.
func (k *kubelet) run(p *pod) error {
	shares := model.MilliCPUToShares(p.requestMilli)
	if err := k.box.mkdir(k.dir(p)); err != nil {
		return err
	}
	if err := k.write(k.dir(p), shares); err != nil {
		return err
	}
	if err := k.box.mkdir(k.containerDir(p)); err != nil {
		return err
	}
	// The container's weight is written by the runtime, on v2 by another formula. Alone in its pod it competes with nobody.
	raw := cgroup.Raw{Number: shares}
	if k.box.mount.Version == cgroup.V2 {
		raw = cgroup.Raw{Number: cgroup.ContainerWeight(shares)}
	}
	if err := k.box.setWeight(k.containerDir(p), raw); err != nil {
		return err
	}
	for _, dir := range []string{k.dir(p), k.containerDir(p)} {
		if p.limitMilli == 0 {
			break
		}
		if err := k.box.setQuota(dir, model.MilliCPUToQuota(p.limitMilli, model.DefaultQuotaPeriod)); err != nil {
			return err
		}
	}
	if p.qos != model.Burstable {
		return nil
	}
	k.burstable += p.requestMilli
	return k.writeBurstable()
}

// writeBurstable gives the burstable class the sum of its pods' requests. The kubelet does so at each pod's start and end,
// and so undoes what anybody else had written.
func (k *kubelet) writeBurstable() error {
	return k.write(k.layout.Class(model.Burstable), model.MilliCPUToShares(k.burstable))
}

func (k *kubelet) dir(p *pod) string {
	if p.group != "" {
		return p.group
	}
	return k.layout.Pod(p.qos, p.uid())
}

func (k *kubelet) containerDir(p *pod) string {
	if p.inner != "" {
		return p.inner
	}
	return k.dir(p) + "/" + p.hash()
}

func (k *kubelet) write(dir string, shares int64) error {
	return k.box.setWeight(dir, cgroup.ToRaw(k.box.mount.Version, model.Shares, model.Number(shares)))
}

// manifest is a Pod as anybody would write it, with the UID that an API server would have added; a batch pod as the webhook
// makes it. One that asks for CPUs, has a CPU limit, or is batch, also has the container's id, which the kubelet would have
// added: these are a container's, and that is its cgroup's name. A Guaranteed pod is not held to its limit: its node enforces
// none (the kubelet's cpuCFSQuota: false), so that only weights decide.
var manifest = template.Must(template.New("pod").Parse(`apiVersion: v1
kind: Pod
metadata:
  name: {{.Name}}
  namespace: default
  uid: {{.UID}}
{{- if .Batch}}
  labels: {{"{"}}{{.Label}}: {{.BE}}{{"}"}}
{{- end}}
{{- if or .Shares .Guaranteed .CPUs}}
  annotations:
{{- if .Shares}}
    {{.Key}}: "{{.Shares}}"
{{- end}}
{{- if .Guaranteed}}
    {{.Quota}}: unlimited
{{- end}}
{{- if .CPUs}}
    {{.Manager}}: {{.CPUs}}
{{- end}}
{{- end}}
spec:
  containers:
  - name: main
    image: example.org/load
    resources:
{{- if .Guaranteed}}
      limits: {cpu: {{.CPU}}m, memory: 64Mi}
{{- else if .Batch}}
      limits: {{"{"}}{{.BatchCPU}}: {{.Batch}}{{if .Memory}}, {{.BatchMemory}}: {{.Memory}}{{end}}{{"}"}}
      requests: {{"{"}}{{.BatchCPU}}: {{.Batch}}{{if .Memory}}, {{.BatchMemory}}: {{.Memory}}{{end}}{{"}"}}
{{- else if .CPU}}
      requests: {cpu: {{.CPU}}m{{if .Memory}}, memory: {{.Memory}}{{end}}}
{{- if .Limit}}
      limits: {cpu: {{.Limit}}m}
{{- end}}
{{- end}}
{{- if or .CPUs .Limit .Batch}}
status:
  containerStatuses:
  - name: main
    containerID: containerd://{{.ID}}
{{- end}}
`))
