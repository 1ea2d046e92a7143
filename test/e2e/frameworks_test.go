package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/test/bed/pages"
)

const frameworksPage = "../../docs/frameworks.md"

// framework is a controller with a webhook, built by test/bed/frameworks.sh. Its chart is installed without its
// Deployment's pods. The controller runs as a process with the rights of the chart's ServiceAccount.
type framework struct {
	t                        *testing.T
	name, namespace, account string
	config                   string // ConfigMap
	replicas                 string // value of the chart: the number of the controller's pods
	port                     int    // of the webhook; the next one is that of its health checks
	more                     map[string]any
	running                  *process
}

// frameworkProgram returns the path of a framework's program. It skips the test if there is none.
func frameworkProgram(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(built, "bed/frameworks/bin", name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "" {
			t.Skipf("make test-frameworks builds it: %v", err)
		}
		t.Fatal(err)
	}
	return path
}

// install installs the chart, or upgrades it, with values for Helm. The API server reaches the webhook at this
// process's side of the network.
func (f *framework) install(values string) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		f.t.Fatal(err)
	}
	helm(f.t, "upgrade", "--install", f.name, filepath.Join(built, "bed/frameworks", f.name), "--namespace", f.namespace,
		"--create-namespace", "--values", file, "--set", f.replicas+"=0")
	// Nothing serves these, and until they answer the API server cannot list its resources.
	for _, version := range []string{"v1beta1", "v1beta2"} {
		kubectl(f.t, "delete", "apiservice", version+".visibility.kueue.x-k8s.io", "--ignore-not-found")
	}
	if out, err := tryApply(fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: beside, namespace: %s, labels: {kubernetes.io/service-name: %s-webhook-service}}
addressType: IPv4
ports: [{name: "", port: %d, protocol: TCP}]
endpoints: [{addresses: [%s]}]
`, f.namespace, f.name, f.port, bed.HostAddress())); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
}

// uninstall removes the chart. Its webhooks would refuse pods of later tests.
func (f *framework) uninstall() {
	helm(f.t, "uninstall", f.name, "--namespace", f.namespace, "--wait", "--ignore-not-found")
	kubectl(f.t, "delete", "namespace", f.namespace, "--ignore-not-found", ready)
}

// start starts the controller with the configuration of the chart, apart from addresses, and waits until it is ready.
func (f *framework) start() {
	f.t.Helper()
	var config map[string]any
	text := object[corev1.ConfigMap](f.t, "configmap", f.config, "-n",
		f.namespace).Data["controller_manager_config.yaml"]
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		f.t.Fatalf("%v: %s", err, text)
	}
	dir := f.t.TempDir()
	health := fmt.Sprintf("%s:%d", bed.HostAddress(), f.port+1)
	maps.Copy(config, f.more)
	config["health"] = map[string]any{"healthProbeBindAddress": health}
	config["metrics"] = map[string]any{"bindAddress": "0"}
	config["webhook"] = map[string]any{"host": bed.HostAddress(), "port": f.port, "certDir": dir}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	content, err := yaml.Marshal(config)
	if err != nil {
		f.t.Fatal(err)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		f.t.Fatal(err)
	}
	p := &process{t: f.t, log: &lockedBuffer{}, done: make(chan error, 1)}
	p.cmd = exec.Command(frameworkProgram(f.t, f.name), "--config", file)
	p.cmd.Env = append(os.Environ(),
		"KUBECONFIG="+kubeconfig(f.t, kubectl(f.t, "create", "token", f.account, "-n", f.namespace)))
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	f.running = p
	f.t.Cleanup(func() {
		p.stop(os.Kill)
		if f.t.Failed() {
			f.t.Logf("the log of %s:\n%s", f.name, p.log)
		}
	})
	// The controller makes its certificates, and waits until the kubelet has mounted them.
	eventually(f.t, "the certificates of "+f.name, func() (bool, string) {
		all := object[corev1.Secret](f.t, "secret", f.name+"-webhook-server-cert", "-n", f.namespace).Data
		for name, content := range all {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				f.t.Fatal(err)
			}
		}
		return len(all[corev1.TLSCertKey]) > 0, p.log.String()
	})
	eventually(f.t, f.name+" is ready", func() (bool, string) {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return false, err.Error() + p.log.String()
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
}

// docBlock returns a fenced block of the page about frameworks.
func docBlock(t *testing.T, language, contains string) string {
	t.Helper()
	blocks, err := pages.Texts(frameworksPage, language)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range blocks {
		if strings.Contains(text, contains) {
			return text
		}
	}
	t.Fatalf("%s has no block in %s with %q", frameworksPage, language, contains)
	return ""
}

// workload is the part of a Workload of Kueue that the test reads.
type workload struct {
	Metadata struct {
		OwnerReferences []struct{ Name string }
	}
	Status struct {
		Conditions []struct{ Type, Status, Reason, Message string }
		Admission  *struct {
			PodSetAssignments []struct{ ResourceUsage corev1.ResourceList }
		}
	}
}

// queued is Kueue, and a namespace with its queue.
type queued struct {
	framework
	space string
}

// workload returns the Workload of an owner.
func (q *queued) workload(owner string) (workload, bool) {
	q.t.Helper()
	for _, w := range object[struct{ Items []workload }](q.t, "workloads", "-n", q.space).Items {
		if o := w.Metadata.OwnerReferences; len(o) == 1 && o[0].Name == owner {
			return w, true
		}
	}
	return workload{}, false
}

// admitted waits until Kueue has admitted an owner's Workload, and returns what it counts for it in its first set of
// pods.
func (q *queued) admitted(owner string) string {
	q.t.Helper()
	var counted string
	eventually(q.t, owner+" is admitted", func() (bool, string) {
		w, _ := q.workload(owner)
		if w.Status.Admission == nil {
			return false, fmt.Sprintf("%+v", w)
		}
		counted = amounts(w.Status.Admission.PodSetAssignments[0].ResourceUsage)
		return true, ""
	})
	return counted
}

// amounts returns CPU and memory in one line, under every name that is there.
func amounts(list corev1.ResourceList) string {
	var all []string
	for _, name := range []corev1.ResourceName{"cpu", "memory", ours, "waterline.io/batch-memory"} {
		if amount, ok := list[name]; ok {
			all = append(all, string(name)+"="+amount.String())
		}
	}
	return strings.Join(all, " ")
}

// waits waits until Kueue says why it does not admit an owner's Workload.
func (q *queued) waits(owner, why string) {
	q.t.Helper()
	eventually(q.t, owner+" waits: "+why, func() (bool, string) {
		w, _ := q.workload(owner)
		for _, c := range w.Status.Conditions {
			if c.Type == "QuotaReserved" && c.Status == "False" && strings.Contains(c.Message, why) {
				return w.Status.Admission == nil, fmt.Sprintf("%+v", w)
			}
		}
		return false, fmt.Sprintf("%+v", w)
	})
}

// job makes a batch Job of two pods in the queue, with requests of each pod.
func (q *queued) job(name, requests string) {
	q.t.Helper()
	q.make(fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: %s, labels: {kueue.x-k8s.io/queue-name: batch}}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {labels: {waterline.io/qos: BE}}
    spec: {restartPolicy: Never, containers: [{name: c, image: none, resources: {requests: %s, limits: %[3]s}}]}
`, name, q.space, requests))
}

// make makes objects. Its namespace deletes them.
func (q *queued) make(manifest string) {
	q.t.Helper()
	if out, err := tryApply(manifest); err != nil {
		q.t.Fatalf("%v: %s", err, out)
	}
}

// pods waits until a Job has two pods, and returns the requests of each.
func (q *queued) pods(job string) []string {
	q.t.Helper()
	var all []string
	eventually(q.t, "two pods of "+job, func() (bool, string) {
		all = nil
		list := object[corev1.PodList](q.t, "pods", "-n", q.space, "-l", "batch.kubernetes.io/job-name="+job)
		for i := range list.Items {
			all = append(all, requestsOf(&list.Items[i]))
		}
		return len(all) == 2, fmt.Sprint(all)
	})
	return all
}

// suspended returns whether a Job is suspended and how many pods it has.
func (q *queued) suspended(job string) (bool, int32) {
	q.t.Helper()
	j := object[batchv1.Job](q.t, "job", job, "-n", q.space)
	return j.Spec.Suspend != nil && *j.Spec.Suspend, j.Status.Active
}

// newQueued installs Waterline's chart and Kueue's, and makes a namespace.
func newQueued(t *testing.T, values string) *queued {
	t.Helper()
	frameworkProgram(t, "kueue")
	m := newManaged(t)
	m.manager()
	m.answering()
	q := &queued{space: "queued", framework: framework{t: t, name: "kueue", namespace: "kueue-system",
		account: "kueue-controller-manager", config: "kueue-manager-config", replicas: "controllerManager.replicas",
		port: 19450, more: map[string]any{"namespace": "kueue-system",
			"featureGates": map[string]any{"VisibilityOnDemand": false}}}}
	t.Cleanup(q.uninstall)
	q.install(values)
	q.start()
	makeNamespace(t, q.space, "")
	return q
}

// TestFrameworksKueue runs Kueue with the files of docs/frameworks.md. Jobs request native CPU and memory in their
// templates. Kueue counts these before our webhook sees a pod. It counts a plain pod after the webhook. Either way, it
// counts the amount that the pods request as batch resources in the end.
func TestFrameworksKueue(t *testing.T) {
	q := newQueued(t, docBlock(t, "yaml", "input: waterline.io/batch-cpu"))
	q.queue(docBlock(t, "yaml", "coveredResources: [cpu, memory]"))

	t.Log("a Job is counted before the webhook sees its pods")
	q.job("first", "{cpu: 1500m, memory: 1Gi}")
	if is := q.admitted("first"); is != "cpu=3 memory=2Gi" {
		t.Errorf("Kueue counts %s", is)
	}
	for _, pod := range q.pods("first") {
		if pod != "c(batch-cpu=1500 batch-memory=1073741824)" {
			t.Errorf("a pod requests %s", pod)
		}
	}
	t.Log("a second Job waits, and has no pods")
	q.job("second", "{cpu: 250m, memory: 4Gi}")
	q.waits("second", "insufficient unused quota for memory")
	if suspended, pods := q.suspended("second"); !suspended || pods != 0 {
		t.Errorf("the second Job has %d pods, suspended: %t", pods, suspended)
	}
	t.Log("a pod without a Job is counted after the webhook")
	q.make(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: %s, labels: {waterline.io/qos: BE, kueue.x-k8s.io/queue-name: batch}}
spec: {containers: [{name: c, image: none, resources: {requests: {cpu: 250m, memory: 1Gi}}}]}
`, q.space))
	if is := q.admitted("alone"); is != "cpu=250m memory=1Gi" {
		t.Errorf("Kueue counts %s", is)
	}
	pod := object[corev1.Pod](t, "pod", "alone", "-n", q.space)
	if is := requestsOf(&pod); is != "c(batch-cpu=250 batch-memory=1073741824)" {
		t.Errorf("the pod requests %s", is)
	}
	t.Log("a Job that names batch resources is counted the same")
	q.job("named", "{waterline.io/batch-cpu: 250, waterline.io/batch-memory: 512Mi}")
	if is := q.admitted("named"); is != "cpu=500m memory=1Gi" {
		t.Errorf("Kueue counts %s", is)
	}
	t.Log("all of it is used once")
	eventually(t, "the queue's usage", func() (bool, string) {
		is := kubectl(t, "get", "clusterqueue", "batch", "-o", "jsonpath={.status.flavorsReservation[0].resources[*].total}")
		return is == "3750m 4Gi", is
	})
	t.Log("the second Job starts when the others end")
	kubectl(t, "delete", "-n", q.space, "job/first", "job/named", "pod/alone", "--grace-period=0", "--force")
	if is := q.admitted("second"); is != "cpu=500m memory=8Gi" {
		t.Errorf("Kueue counts %s", is)
	}
	for _, pod := range q.pods("second") {
		if pod != "c(batch-cpu=250 batch-memory=4294967296)" {
			t.Errorf("a pod requests %s", pod)
		}
	}
}

// queue makes the queues of a manifest, in the namespace of the test. A webhook of Kueue may not answer at once.
func (q *queued) queue(manifest string) {
	q.t.Helper()
	manifest = strings.ReplaceAll(manifest, "namespace: research", "namespace: "+q.space)
	eventually(q.t, "the queues are made", func() (bool, string) {
		out, err := tryApply(manifest)
		return err == nil, out
	})
	q.t.Cleanup(func() {
		kubectl(q.t, "delete", "namespace", q.space, "--ignore-not-found", ready)
		if out, err := withManifest(manifest, "delete", "--ignore-not-found"); err != nil {
			q.t.Errorf("%v: %s", err, out)
		}
	})
}
