package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

const transcodePolicy = `policy={"mode":"Enforce","priority":-1000,"cpu":{},"memory":{},` +
	`"batchPods":[{"selector":{"matchLabels":{"app":"transcode"}}}]}`

// answering waits until the API server calls the manager.
func (m *managed) answering() {
	m.t.Helper()
	eventually(m.t, "the webhook answers", func() (bool, string) {
		response, err := http.Get("http://" + managerAddress() + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		_ = response.Body.Close()
		pod, out := m.try("default",
			`metadata: {name: probe, labels: {waterline.io/qos: BE}}, spec: {containers: [{name: c, image: none, `+
				`resources: {requests: {cpu: 1}}}]}`, "--dry-run=server")
		return pod != nil && pod.Spec.PriorityClassName == v1alpha1.PriorityClassBatch, out
	})
}

// namespace makes a namespace with some objects, and waits until pods can be made there.
func (m *managed) namespace(name, labels, contents string) {
	m.t.Helper()
	makeNamespace(m.t, name, labels)
	if contents != "" {
		apply(m.t, contents)
	}
}

// counted waits until Kubernetes has counted the resources of a quota. Until then it refuses pods that request them.
func (m *managed) counted(namespace, quota string) {
	m.t.Helper()
	eventually(m.t, "quota "+quota+" in "+namespace+" is counted", func() (bool, string) {
		hard := kubectl(m.t, "get", "resourcequota", quota, "-n", namespace, "-o", "jsonpath={.status.hard}")
		return hard != "", hard
	})
}

// try creates a pod that no scheduler places. If the API server refuses it, the pod is nil and the text is the error.
func (m *managed) try(namespace, pod string, args ...string) (*corev1.Pod, string) {
	m.t.Helper()
	c := bed.Kubectl(m.t.Context(), append([]string{"create", "-n", namespace, "-o", "json", "-f", "-"}, args...)...)
	c.Stdin = strings.NewReader("{apiVersion: v1, kind: Pod, " + strings.Replace(pod, "spec: {",
		"spec: {schedulerName: none, ", 1) + "}")
	var warnings strings.Builder
	c.Stderr = &warnings
	out, err := c.Output()
	if err != nil {
		return nil, warnings.String()
	}
	created := &corev1.Pod{}
	if err := json.Unmarshal(out, created); err != nil {
		m.t.Fatal(err)
	}
	return created, warnings.String()
}

// requestsOf returns the requests of a pod's containers, in one line. If a limit differs from the request, it shows
// both.
func requestsOf(pod *corev1.Pod) string {
	var all []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			var parts []string
			for _, name := range []corev1.ResourceName{"cpu", "memory", v1alpha1.ResourceBatchCPU, v1alpha1.ResourceBatchMemory,
				v1alpha1.ResourceMidCPU, v1alpha1.ResourceMidMemory} {
				request, has := c.Resources.Requests[name]
				limit, also := c.Resources.Limits[name]
				if has || also {
					part := fmt.Sprintf("%s=%d", strings.TrimPrefix(string(name), "waterline.io/"), request.Value())
					if request.Cmp(limit) != 0 {
						part += fmt.Sprintf("/%d", limit.Value())
					}
					parts = append(parts, part)
				}
			}
			all = append(all, c.Name+"("+strings.Join(parts, " ")+")")
		}
	}
	return strings.Join(all, " ")
}

// TestAPIWebhook creates pods of all kinds while a manager answers.
func TestAPIWebhook(t *testing.T) {
	m := newManaged(t, "--set-json", transcodePolicy)
	m.manager()
	m.answering()
	m.namespace("tenant", "waterline.io/colocation: enabled", "")
	m.namespace("other", "", "")
	m.namespace("limited", "", `
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: limited}
spec: {limits: [{type: Container, default: {cpu: "1", memory: 512Mi}, defaultRequest: {cpu: 500m, memory: 256Mi}}]}
`)
	m.namespace("counted", "", `
apiVersion: v1
kind: ResourceQuota
metadata: {name: batch, namespace: counted}
spec: {hard: {requests.waterline.io/batch-cpu: 3000}}
`)
	m.namespace("native", "", `
apiVersion: v1
kind: ResourceQuota
metadata: {name: cpu, namespace: native}
spec: {hard: {requests.cpu: 1}}
`)
	apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-mid}, value: 7000}`)
	const be = `metadata: {generateName: p-, labels: {waterline.io/qos: BE}}, `
	const one = `{name: c, image: none, resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}`
	for i, c := range []struct {
		what, namespace, pod, requests, class string
		warning                               string
	}{
		{"labelled", "other", be + `spec: {containers: [` + one + `]}`, "c(batch-cpu=2000 batch-memory=1073741824)",
			"waterline-batch", ""},
		{"with Koordinator's label", "other",
			`metadata: {generateName: p-, labels: {koordinator.sh/qosClass: BE}}, spec: {containers: [` + one + `]}`,
			"c(batch-cpu=2000 batch-memory=1073741824)", "waterline-batch", ""},
		{"with both labels", "other",
			`metadata: {generateName: p-, labels: {waterline.io/qos: LS, koordinator.sh/qosClass: BE}}, spec: {containers: [` +
				one + `]}`,
			"c(cpu=2 memory=1073741824)", "", ""},
		{"Burstable", "other", be +
			`spec: {containers: [{name: c, image: none, resources: {requests: {cpu: 500m}, limits: {cpu: 2, memory: 1Gi}}}]}`,
			"c(batch-cpu=500 batch-memory=1073741824)", "waterline-batch", ""},
		{"init containers and sidecars", "other",
			be + `spec: {initContainers: [{name: i, image: none, resources: {requests: {cpu: 3}}}, {name: s, image: none, ` +
				`restartPolicy: Always, resources: {requests: {cpu: 100m}}}], containers: [` + one + `]}`,
			"i(batch-cpu=3000) s(batch-cpu=100) c(batch-cpu=2000 batch-memory=1073741824)", "waterline-batch", ""},
		{"of the mid tier", "other", be + `spec: {priorityClassName: waterline-mid, containers: [` + one + `]}`,
			"c(mid-cpu=2000 mid-memory=1073741824)", "waterline-mid", ""},
		{"with the priority of online pods", "other", be + `spec: {priorityClassName: waterline-prod, containers: [` + one +
			`]}`,
			"c(batch-cpu=2000 batch-memory=1073741824)", "waterline-batch", `"waterline-prod" is not for batch`},
		{"with a priority of Koordinator", "other", be + `spec: {priorityClassName: koord-mid, containers: [` + one + `]}`,
			"c(mid-cpu=2000 mid-memory=1073741824)", "waterline-mid", `"koord-mid" is not for batch`},
		{"with its priority as a number", "other",
			be + `spec: {priority: 0, preemptionPolicy: PreemptLowerPriority, containers: [` + one + `]}`,
			"c(batch-cpu=2000 batch-memory=1073741824)", "waterline-batch", ""},
		{"with pod-level requests", "other",
			be + `spec: {resources: {requests: {cpu: 3, memory: 1Gi}, limits: {cpu: 4, memory: 1Gi}}, containers: [{name: c, ` +
				`image: none, resources: {requests: {cpu: 1}}}, {name: d, image: none}]}`,
			"c(batch-cpu=1000 batch-memory=536870912) d(batch-cpu=2000 batch-memory=536870912)", "waterline-batch", ""},
		{"with a LimitRange's defaults", "limited", be + `spec: {containers: [{name: c, image: none}]}`,
			"c(batch-cpu=500 batch-memory=268435456)", "waterline-batch", ""},
		{"with a LimitRange and its own requests", "limited",
			be + `spec: {containers: [{name: c, image: none, resources: {requests: {cpu: 100m, memory: 64Mi}}}]}`,
			"c(batch-cpu=100 batch-memory=67108864)", "waterline-batch", ""},
		{"selected", "tenant", `metadata: {generateName: p-, labels: {app: transcode}}, spec: {containers: [` + one + `]}`,
			"c(batch-cpu=2000 batch-memory=1073741824)", "waterline-batch", ""},
		{"not selected", "tenant", `metadata: {generateName: p-, labels: {app: web}}, spec: {containers: [` + one + `]}`,
			"c(cpu=2 memory=1073741824)", "", ""},
		{"selected, in a namespace without opt-in", "other",
			`metadata: {generateName: p-, labels: {app: transcode}}, spec: {containers: [` + one + `]}`,
			"c(cpu=2 memory=1073741824)", "", ""},
	} {
		ways := [][]string{{"--dry-run=server"}, nil}
		if testing.Short() && i > 0 {
			ways = ways[:1] // both ways are one to the manager, as the first kind shows
		}
		for _, how := range ways {
			t.Run(c.what+strings.Join(how, ""), func(t *testing.T) {
				pod, message := m.try(c.namespace, c.pod, how...)
				if pod == nil {
					t.Fatal(message)
				}
				if got := requestsOf(pod); got != c.requests || pod.Spec.PriorityClassName != c.class {
					t.Errorf("class %q, requests %s", pod.Spec.PriorityClassName, got)
				}
				if c.class != "" && (*pod.Spec.Priority >= -10 || *pod.Spec.PreemptionPolicy != corev1.PreemptNever ||
					pod.Labels[v1alpha1.LabelQoS] == "" && pod.Labels[v1alpha1.LabelQoSAlias] == "") {
					t.Errorf("priority %d, preempts %s, labels %v", *pod.Spec.Priority, *pod.Spec.PreemptionPolicy, pod.Labels)
				}
				if c.warning == "" && message != "" || !strings.Contains(message, c.warning) {
					t.Errorf("the API server's warning is %q", message)
				}
			})
		}
	}

	t.Run("Downward", m.testDownward)

	t.Log("a quota counts batch resources")
	m.counted("counted", "batch")
	if pod, message := m.try("counted", be+`spec: {containers: [`+one+`]}`); pod == nil {
		t.Error(message)
	}
	if pod, message := m.try("counted", be+`spec: {containers: [`+one+`]}`); pod != nil ||
		!strings.Contains(message, "exceeded quota: batch") {
		t.Errorf("a second one: %s", message)
	}
	// A quota of native CPU demands that each container requests it.
	if pod, message := m.try("native", be+`spec: {containers: [`+one+`]}`); pod != nil ||
		!strings.Contains(message, "must specify requests.cpu") {
		t.Errorf("with a quota of CPU: %s", message)
	}

	t.Log("the written pod is unchanged")
	pod, _ := m.try("other", `metadata: {name: kept, labels: {waterline.io/qos: BE}}, spec: {containers: [`+one+`]}`)
	message, err := bed.Kubectl(t.Context(), "annotate", "pod", "kept", "-n", "other", "--overwrite",
		`waterline.io/batch-resources={"pod":{}}`).CombinedOutput()
	if err != nil || !strings.Contains(string(message), "its old value stays") {
		t.Errorf("%v: %s", err, message)
	}
	if now := object[corev1.Pod](t, "pod", "kept", "-n", "other"); pod == nil ||
		now.Annotations[v1alpha1.AnnotationBatchResources] != pod.Annotations[v1alpha1.AnnotationBatchResources] {
		t.Error(now.Annotations)
	}
	if metrics := m.metrics(); !strings.Contains(metrics, `waterline_admissions_total{reason="ByPolicy"}`) {
		t.Errorf("not counted: %s", metrics)
	}
}

// TestAPIWebhookCertificates creates pods while the webhook's certificates are renewed. No pod may slip.
func TestAPIWebhookCertificates(t *testing.T) {
	m := newManaged(t)
	m.manager()
	m.answering()
	secret := func() string {
		return string(object[corev1.Secret](t, "secret", "waterline-webhook", "-n",
			"waterline-system").Data[corev1.TLSCertKey])
	}
	before := secret()
	m.patch("/api/v1/namespaces/waterline-system/secrets/waterline-webhook", `{"data":{"tls.crt":"","tls.key":""}}`)
	made := 0
	create := func() {
		t.Helper()
		pod, message := m.try("default",
			`metadata: {name: probe, labels: {waterline.io/qos: BE}}, spec: {containers: [{name: c, image: none, `+
				`resources: {requests: {cpu: 1}}}]}`, "--dry-run=server")
		if pod == nil || requestsOf(pod) != "c(batch-cpu=1000)" {
			t.Fatalf("pod %d slipped: %s", made, message)
		}
		made++
	}
	eventually(t, "the certificate is renewed", func() (bool, string) {
		create()
		after := secret()
		return after != before && after != "", after
	})
	t.Logf("renewed after %d pods", made)
	for range 40 { // meanwhile the API server learns of it, and so does the manager
		create()
	}
}

// TestAPISlipped creates pods while there is no manager. The manager counts them, and reports once to their owner.
func TestAPISlipped(t *testing.T) {
	m := newManaged(t)
	m.node("m0", ours, "")
	apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: slips}
spec:
  replicas: 2
  selector: {matchLabels: {app: slips}}
  template:
    metadata: {labels: {app: slips, waterline.io/qos: BE}}
    spec: {nodeName: m0, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0, containers: [{name: c, image: none, resources: {requests: {cpu: 1}}}]}
`)
	pods := func() []corev1.Pod { return object[corev1.PodList](t, "pods", "-l", "app=slips").Items }
	eventually(t, "two pods", func() (bool, string) { return len(pods()) == 2, fmt.Sprint(len(pods())) })
	for _, pod := range pods() {
		if got := requestsOf(&pod); got != "c(cpu=1/0)" {
			t.Errorf("the pod requests %s", got)
		}
	}
	first := m.manager()
	policy := func() v1alpha1.ColocationPolicyStatus {
		return object[v1alpha1.ColocationPolicy](t, "colocationpolicy", "default").Status
	}
	eventually(t, "both are counted", func() (bool, string) {
		return policy().SlippedPods == 2,
			fmt.Sprintf("%+v", policy())
	})
	replicas := object[appsv1.ReplicaSetList](t, "replicasets", "-l", "app=slips").Items
	events := func() []corev1.Event {
		return object[corev1.EventList](t, "events", "--field-selector", "reason=NotAdmitted").Items
	}
	if e := events(); len(e) != 1 || e[0].InvolvedObject.Kind != "ReplicaSet" ||
		e[0].InvolvedObject.UID != replicas[0].UID {
		t.Errorf("events: %+v", e)
	}
	first.stop(syscall.SIGTERM)
	m.manager()
	m.answering()
	m.shows("waterline_slipped_pods 2")
	if e := events(); len(e) != 1 {
		t.Errorf("after a restart there are %d events", len(e))
	}
	if len(pods()) != 2 || pods()[0].DeletionTimestamp != nil {
		t.Error("a slipped pod was deleted")
	}
	t.Log("made again, the pods request batch resources, and are no longer counted")
	kubectl(t, "delete", "pods", "-l", "app=slips", "--grace-period=0", "--force")
	eventually(t, "nothing is counted", func() (bool, string) {
		return policy().SlippedPods == 0,
			fmt.Sprintf("%+v", policy())
	})
	for _, pod := range pods() {
		if got := requestsOf(&pod); got != "c(batch-cpu=1000)" {
			t.Errorf("the pod requests %s", got)
		}
	}
	m.shows(`waterline_batch_cpu_requested_cores{namespace="default",owner="Deployment/slips"} 2`)
	kubectl(t, "delete", "events", "--field-selector", "reason=NotAdmitted")
}
