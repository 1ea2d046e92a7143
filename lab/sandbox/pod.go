package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"text/template"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Pod is one pod of an experiment, with one container.
type Pod struct {
	Name         string
	QoS          model.QoSClass
	RequestMilli int64         // CPU request, in milli-cores
	BatchMilli   int64         // batch CPU request, in milli-cores; above 0 the pod is labelled as batch
	LimitMilli   int64         // CPU limit of a pod that is not Guaranteed; 0: none
	Memory       int64         // request in bytes, of batch memory if the pod is batch; 0: none
	OOMScore     int           // oom_score_adj of its processes
	Shares       int64         // weight annotation; 0: none
	Self         bool          // the agent's own pod: the agent gives it Shares without an annotation
	CPUs         model.CPUMode // CPU manager annotation; "": none
	IP           string        // address of the pod; "": none
	Threads      int           // busy loops of its load
	Wakes        bool          // its loops sleep and wake all the time
	Unbound      bool          // its loops may run on any CPU of the pod, and are not dealt out evenly

	group, container string // cgroups that a real kubelet made
}

// UID returns a UID in the form that an API server gives, always the same for a name.
func (p *Pod) UID() string {
	h := p.hash()
	return strings.Join([]string{h[:8], h[8:12], "4" + h[13:16], "8" + h[17:20], h[20:32]}, "-")
}

// hash is also the id of the pod's container.
func (p *Pod) hash() string {
	sum := sha256.Sum256([]byte(p.Name))
	return hex.EncodeToString(sum[:])
}

// Manifest returns the pod as YAML, with the UID that an API server would add. A batch pod looks as the webhook leaves
// it.
//
// A pod with a CPU manager annotation, with a CPU limit, or of batch also has the id of its container, which the
// kubelet would add: these settings stand in the container's cgroup, which has that name. A Guaranteed pod is annotated
// to run without its CPU quota, as on a node with the kubelet's cpuCFSQuota: false, so that only weights decide.
func (p *Pod) Manifest() ([]byte, error) {
	var text bytes.Buffer
	shares := p.Shares
	if p.Self {
		shares = 0
	}
	err := manifest.Execute(&text, map[string]any{
		"Name": p.Name, "UID": p.UID(), "Key": v1alpha1.AnnotationCPUShare, "Shares": shares, "CPU": p.RequestMilli,
		"Guaranteed": p.QoS == model.Guaranteed, "Quota": v1alpha1.AnnotationCPUQuota,
		"Manager": v1alpha1.AnnotationCPUManager, "CPUs": p.CPUs, "ID": p.hash(), "Limit": p.LimitMilli,
		"Batch": p.BatchMilli, "Label": v1alpha1.LabelQoS, "BE": model.ClassBE, "BatchCPU": v1alpha1.ResourceBatchCPU,
		"IP": p.IP, "Memory": p.Memory, "BatchMemory": v1alpha1.ResourceBatchMemory,
	})
	if err != nil {
		return nil, fmt.Errorf("composing the manifest of pod %s: %w", p.Name, err)
	}
	return text.Bytes(), nil
}

var manifest = template.Must(template.New("pod").Parse(`apiVersion: v1
kind: Pod
metadata:
  name: {{.Name}}
  namespace: default
  uid: {{.UID}}
  labels: {{"{"}}app: {{.Name}}{{if .Batch}}, {{.Label}}: {{.BE}}{{end}}{{"}"}}
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
{{- if or .CPUs .Limit .Batch .IP}}
status:
{{- if .IP}}
  podIP: {{.IP}}
{{- end}}
  containerStatuses:
  - name: main
    containerID: containerd://{{.ID}}
{{- end}}
`))
