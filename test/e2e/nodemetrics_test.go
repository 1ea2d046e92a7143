package e2e_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// loaded makes a pod of a class that runs a script.
func (n *node) loaded(name, class, script, resources string) {
	n.t.Helper()
	labels := ""
	if class != "" {
		labels = v1alpha1.LabelQoS + ": " + class
	}
	apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {%s}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "%s", imagePullPolicy: Never, command: [sh, -c, "%s"], resources: {%s}}]
`, name, labels, n.name, cluster.BusyboxImage, script, resources))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/"+name, ready)
}

// dirOf returns the cgroup of a pod.
func (n *node) dirOf(pod *corev1.Pod) string {
	class := map[corev1.PodQOSClass]model.QoSClass{corev1.PodQOSGuaranteed: model.Guaranteed,
		corev1.PodQOSBurstable: model.Burstable, corev1.PodQOSBestEffort: model.BestEffort}
	uid := string(pod.UID)
	if hash := pod.Annotations["kubernetes.io/config.hash"]; hash != "" {
		uid = hash // of a static pod
	}
	return n.layout.Pod(class[pod.Status.QOSClass], uid)
}

// exposition is the agent's response at /metrics.
type exposition string

// of returns the value of a series with these labels, as they are written.
func (e exposition) of(t testing.TB, metric, labels string) float64 {
	t.Helper()
	if labels != "" {
		labels = "{" + labels + "}"
	}
	for line := range strings.Lines(string(e)) {
		if value, found := strings.CutPrefix(line, metric+labels+" "); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("the agent publishes no %s%s", metric, labels)
	return 0
}

// The API server does not reach the pods of the virtual machine.
const getMetrics = `exec 3<>/dev/tcp/$0/9464 && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && cat <&3`

// whole reports whether the response is complete. An agent whose loop waits for seconds publishes no figures.
func (e exposition) whole() bool { return strings.Contains(string(e), "\n"+v1alpha1.MetricRounds+" ") }

// metrics returns the metrics of the node's agent.
func (n *node) metrics(agent *corev1.Pod) exposition {
	n.t.Helper()
	var shown exposition
	eventually(n.t, "metrics", func() (bool, string) {
		out, err := n.machine.run("bash", "-c", getMetrics, agent.Status.PodIP)
		shown = exposition(out)
		return err == nil && shown.whole(), fmt.Sprintf("%v: %s", err, out)
	})
	return shown
}

// checkExplained checks that the rows of waterline explain node add up.
func (n *node) checkExplained() {
	n.t.Helper()
	out, err := program("waterline", "explain", "node", n.name, "--kubeconfig", bed.Kubeconfig())
	if err != nil {
		n.t.Fatalf("explain: %v: %s", err, out)
	}
	number := `(-?[\d.]+)`
	row := regexp.MustCompile(`(?m)^ *(filled up to|-|= left for batch)(.*?) +` + number + ` +` + number + ` GiB *$`)
	rows := row.FindAllStringSubmatch(out, -1)
	var sum [2]float64
	for _, row := range rows {
		for i := range sum {
			v, err := strconv.ParseFloat(row[3+i], 64)
			if err != nil {
				n.t.Fatal(err)
			}
			switch row[1] {
			case "filled up to":
				sum[i] = v
			case "-":
				sum[i] -= v
			default:
				if want := max(sum[i], 0); v < want-0.04 || v > want+0.04 { // each row is rounded
					n.t.Errorf("%s does not add up: %v, want %.2f", []string{"CPU", "memory"}[i], v, want)
				}
			}
		}
	}
	if len(rows) != 8 {
		n.t.Errorf("%d rows, want 8", len(rows))
	}
	if n.t.Failed() {
		n.t.Logf("it prints:\n%s", out)
	}
}
