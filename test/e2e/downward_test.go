package e2e_test

import (
	"strings"
	"testing"
)

// testDownward creates pods that refer to their own requests and limits. The API server stores their values.
func (m *managed) testDownward(t *testing.T) {
	const pod = `metadata: {generateName: p-, labels: {waterline.io/qos: BE}, ` +
		`annotations: {waterline.io/downward-268435456: forged}}, spec: {` +
		`volumes: [{name: v, downwardAPI: {items: [{path: memory, mode: 256, resourceFieldRef: {containerName: c, ` +
		`resource: limits.memory}}]}}, {name: w, projected: {sources: [{downwardAPI: {items: [{path: cpu, ` +
		`resourceFieldRef: {containerName: s, resource: requests.cpu, divisor: 1m}}]}}]}}], ` +
		`initContainers: [{name: s, restartPolicy: Always, image: none, resources: {requests: {cpu: 20m}}, ` +
		`env: [{name: A, valueFrom: {resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: DIVISOR}}}]}], ` +
		`containers: [{name: c, image: none, resources: {requests: {cpu: 100m}, limits: {cpu: 150m, memory: 256Mi}}, ` +
		`env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}, ` +
		`{name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, ` +
		`{name: C, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage}}}]}]}`
	made, message := m.try("other", strings.Replace(pod, "DIVISOR", "1m", 1))
	if made == nil {
		t.Fatal(message)
	}
	var got []string
	for _, c := range append(made.Spec.InitContainers, made.Spec.Containers...) {
		for _, e := range c.Env {
			got = append(got, c.Name+" "+e.Name+"="+e.Value)
			if e.ValueFrom != nil {
				got = append(got, e.ValueFrom.ResourceFieldRef.Resource)
			}
		}
	}
	items := append(made.Spec.Volumes[0].DownwardAPI.Items, made.Spec.Volumes[1].Projected.Sources[0].DownwardAPI.Items...)
	for _, i := range items {
		if i.ResourceFieldRef != nil || i.FieldRef == nil {
			t.Fatalf("%+v", i)
		}
		_, key, _ := strings.Cut(strings.TrimSuffix(i.FieldRef.FieldPath, "']"), "metadata.annotations['")
		got = append(got, i.Path+"="+made.Annotations[key])
	}
	const want = "s A=150, c A=256, c B=1, c C=, limits.ephemeral-storage, memory=268435456, cpu=20"
	if is := strings.Join(got, ", "); is != want {
		t.Errorf("the pod has %s, want %s", is, want)
	}
	if mode := items[0].Mode; mode == nil || *mode != 0o400 {
		t.Errorf("the file's mode is %v", mode)
	}
	// The error about the original is not hidden.
	if pod, message := m.try("other", strings.Replace(pod, "DIVISOR", "3", 1)); pod != nil ||
		!strings.Contains(message, "only divisor's values 1m and 1 are supported with the cpu resource") {
		t.Errorf("with a wrong divisor: %s", message)
	}
	// The values stay right, because no batch pod can be resized.
	out, err := bed.Kubectl(t.Context(), "patch", "pod", made.Name, "-n", "other", "--subresource=resize", "--patch",
		`{"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "300m"}}}]}}`).CombinedOutput()
	if err == nil {
		t.Errorf("a batch pod was resized: %s", out)
	}
	t.Logf("a resize is refused: %s", out)
}
