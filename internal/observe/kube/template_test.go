package kube

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// TestTemplates reads templates of pools, and checks that the error about a bad one says where and what to do.
func TestTemplates(t *testing.T) {
	content, err := os.ReadFile("testdata/templates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct{ Name, Template, Where, Fix string }
	if err := yaml.Unmarshal(content, &cases); err != nil || len(cases) < 50 {
		t.Fatalf("%d templates: %v", len(cases), err)
	}
	for _, c := range cases {
		_, _, err := ParseWorkerPool([]byte("{apiVersion: waterline.io/v1alpha1, kind: WorkerPool, metadata: {name: p}, " +
			"spec: {yarn: {}, template: " + c.Template + "}}"))
		switch {
		case c.Where == "":
			if err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		case strings.Contains(c.Fix, "unknown field"):
			if err == nil || !strings.Contains(err.Error(), c.Fix) {
				t.Errorf("%s: want an unknown field, have %v", c.Name, err)
			}
		case err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), c.Where) ||
			!strings.Contains(err.Error(), " cannot be used: ") || !strings.Contains(err.Error(), c.Fix):
			t.Errorf("%s: want one error of %s that says %q, have %v", c.Name, c.Where, c.Fix, err)
		}
	}
}

// TestBeside checks what the containers beside the worker request together: those that run with it, or an init
// container that needs more before.
func TestBeside(t *testing.T) {
	_, read, err := ParseWorkerPool([]byte(`
apiVersion: waterline.io/v1alpha1
kind: WorkerPool
metadata: {name: p}
spec:
  yarn: {}
  template:
    spec:
      initContainers:
        - {name: a, image: a, resources: {requests: {cpu: 50m, memory: 16Mi}}}
        - {name: b, image: b, restartPolicy: Always, resources: {requests: {cpu: 10m, memory: 16Mi}}}
      containers:
        - {name: worker, image: hadoop}
        - {name: c, image: c, resources: {requests: {cpu: 20m, memory: 64Mi}, limits: {cpu: 2, memory: 1Gi}}}
`))
	if want := (model.Amount{CPU: 50, Memory: 80 << 20}); err != nil || read.Beside != want {
		t.Errorf("%+v, %v; want %+v", read.Beside, err, want)
	}
}

// TestTemplateFields checks that every field that Kubernetes knows is either one that a worker's pod may have, listed
// here, or has a rule. A new version of Kubernetes with a new field asks for a decision.
func TestTemplateFields(t *testing.T) {
	allowed := map[string]string{
		"spec": "volumes initContainers containers dnsPolicy serviceAccountName hostNetwork securityContext " +
			"imagePullSecrets affinity schedulerName tolerations hostAliases priorityClassName dnsConfig readinessGates " +
			"runtimeClassName enableServiceLinks topologySpreadConstraints hostUsers",
		"spec.securityContext": "seLinuxOptions runAsGroup supplementalGroups supplementalGroupsPolicy fsGroup " +
			"fsGroupChangePolicy seccompProfile appArmorProfile seLinuxChangePolicy",
		"spec.volumes[]": "hostPath emptyDir secret persistentVolumeClaim downwardAPI configMap " +
			"projected ephemeral",
		"spec.volumes[].projected.sources[]": "secret downwardAPI configMap",
	}
	for _, list := range []string{"containers", "initContainers"} {
		at := "spec." + list + "[]"
		allowed[at] = "image command args workingDir ports envFrom env resources volumeMounts livenessProbe readinessProbe " +
			"startupProbe lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin " +
			"stdinOnce tty"
		allowed[at+".ports[]"] = "name containerPort protocol hostIP"
		allowed[at+".securityContext"] = "capabilities seLinuxOptions runAsGroup readOnlyRootFilesystem seccompProfile " +
			"appArmorProfile"
		allowed[at+".securityContext.capabilities"] = "drop"
	}
	allowed["spec.initContainers[]"] += " restartPolicy" // Always makes it a sidecar
	rules := map[string]bool{}
	for _, r := range v1alpha1.TemplateRules() {
		if rules[r.Field] {
			t.Errorf("%s has two rules", r.Field)
		}
		rules[r.Field] = true
	}
	for at, typ := range map[string]reflect.Type{
		"spec": reflect.TypeFor[corev1.PodSpec](), "spec.securityContext": reflect.TypeFor[corev1.PodSecurityContext](),
		"spec.volumes[]": reflect.TypeFor[corev1.Volume](), "spec.containers[]": reflect.TypeFor[corev1.Container](),
		"spec.initContainers[]":                              reflect.TypeFor[corev1.Container](),
		"spec.containers[].securityContext":                  reflect.TypeFor[corev1.SecurityContext](),
		"spec.initContainers[].securityContext":              reflect.TypeFor[corev1.SecurityContext](),
		"spec.containers[].ports[]":                          reflect.TypeFor[corev1.ContainerPort](),
		"spec.initContainers[].ports[]":                      reflect.TypeFor[corev1.ContainerPort](),
		"spec.containers[].securityContext.capabilities":     reflect.TypeFor[corev1.Capabilities](),
		"spec.initContainers[].securityContext.capabilities": reflect.TypeFor[corev1.Capabilities](),
		"spec.volumes[].projected.sources[]":                 reflect.TypeFor[corev1.VolumeProjection](),
	} {
		for _, name := range jsonFields(typ) {
			field := at + "." + name
			ruled := rules[field] || slices.ContainsFunc(v1alpha1.TemplateRules(), func(r v1alpha1.TemplateRule) bool {
				return strings.HasPrefix(r.Field, field+".")
			})
			listed := slices.Contains(strings.Fields(allowed[at]), name)
			if !ruled && !listed || rules[field] && listed {
				t.Errorf("%s: it has a rule: %v; it may stand in a template: %v", field, ruled, listed)
			}
		}
	}
}

// jsonFields returns the names of the fields of a struct, and of those that it embeds, as JSON has them.
func jsonFields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			names = append(names, jsonFields(f.Type)...)
			continue
		}
		names = append(names, name)
	}
	return names
}
