package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// podOf returns a pod of a pool; its name is empty if there is none.
func (y *yard) podOf(name string) corev1.Pod {
	if o, there, _ := y.store.GetByKey(poolNamespace + "/" + name); there {
		return *o.(*corev1.Pod)
	}
	return corev1.Pod{}
}

// testHost runs workers in the network of their nodes, and so under the names of these. A namespace that admits no such
// pods shows in a condition. A NodeManager that was on such a node before keeps its label and its size.
func (y *yard) testHost(t *testing.T) {
	p := y.rm(t, "host", "elastic", quick, 10*time.Second, 10*time.Second)
	fixed := fakerm.Size{MemoryMiB: 8192, VCores: 4}
	p.Start(fakerm.Worker{Host: "host-0:8041", Size: fixed})
	y.offer(t, "host-0", "host", cpuMemory(9, 17))
	y.offer(t, "host-1", "host", cpuMemory(9, 17))
	manifest := specOf("host", p.address, `, identity: {coolDown: 1s}, `+
		`size: {ceiling: {cpu: 2, memory: 4Gi}, pause: 1s, follow: {window: 0s}}, drain: {grace: 10s, timeout: 10s}`)
	y.create(t, strings.Replace(manifest, "containers:", "hostNetwork: true, containers:", 1))
	y.complains(t, "host", v1alpha1.ConditionStepsFailed, "StepFailed", "PodSecurity", "hostNetwork=true")
	kubectl(t, "label", "namespace", poolNamespace, "pod-security.kubernetes.io/enforce=privileged")
	defer kubectl(t, "label", "namespace", poolNamespace, "pod-security.kubernetes.io/enforce-")
	y.active(t, "host", 2)
	for _, node := range []string{"host-0", "host-1"} {
		p.offers(t, node, fakerm.Size{MemoryMiB: 4096, VCores: 2})
		pod := y.podOf("host-" + node)
		if !pod.Spec.HostNetwork || pod.Spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet || pod.Spec.NodeName != node ||
			pod.Spec.Hostname != "" {
			t.Errorf("the pod on %s: %+v", node, pod.Spec)
		}
		if label := p.Node(node).Label; label != "elastic" {
			t.Errorf("the worker on %s has the label %q", node, label)
		}
	}
	if n := p.Node("host-0:8041"); n.Label != "" || n.Total != fixed || n.State != "RUNNING" {
		t.Errorf("the other NodeManager of host-0 became %+v", n)
	}
	if status := y.request(http.MethodDelete, poolPath+"host", ""); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	y.becomes(t, "host", "is gone", func(p *v1alpha1.WorkerPool) bool { return p.Name == "" })
	if hosts := p.Hosts(); len(hosts) > 0 {
		t.Errorf("hosts have labels: %v", hosts)
	}
	y.check(t, p)
}

// testFixed gives workers fixed addresses. A worker keeps its address over its pods, and one fewer worker is the last.
func (y *yard) testFixed(t *testing.T) {
	p := y.rm(t, "fixed", "elastic", quick, 10*time.Second, 10*time.Second)
	for i := range 3 {
		y.offer(t, fmt.Sprintf("fixed-%d", i), "fixed", cpuMemory(9, 17))
	}
	y.create(t, specOf("fixed", p.address, `, replicas: 2, identity: {coolDown: 1s, addresses: [192.0.2.1, 192.0.2.2], `+
		`addressAnnotations: {bed/ips: '["{address}"]', bed/ip: "{address}"}}, drain: {grace: 10s, timeout: 10s}`))
	y.active(t, "fixed", 2)
	addressed := func(name, address string) corev1.Pod {
		t.Helper()
		pod := y.podOf(name)
		if a := pod.Annotations; a["bed/ip"] != address || a["bed/ips"] != `["`+address+`"]` || pod.Spec.Hostname != name {
			t.Errorf("%s: host name %q, annotations %v; want the address %s", name, pod.Spec.Hostname, a, address)
		}
		return pod
	}
	before := addressed("fixed-0", "192.0.2.1")
	addressed("fixed-1", "192.0.2.2")
	if out, err := tryKubectl("delete", "pod", "fixed-0", "-n", poolNamespace, "--timeout=1m"); err != nil {
		t.Errorf("deleting the pod: %v: %s", err, out)
	}
	eventually(t, "fixed-0 has another pod", func() (bool, string) {
		pod := y.podOf("fixed-0")
		return pod.UID != before.UID && pod.Name != "", string(pod.UID)
	})
	addressed("fixed-0", "192.0.2.1")
	y.active(t, "fixed", 2)
	kubectl(t, "scale", "workerpool", "fixed", "-n", poolNamespace, "--replicas=1", "--current-replicas=2")
	y.becomes(t, "fixed", "one worker", func(p *v1alpha1.WorkerPool) bool {
		return p.Status.Active == 1 && p.Status.Wanted == 1 && len(p.Status.Workers) == 1 &&
			p.Status.Workers[0].Name == "fixed-0"
	})
	y.check(t, p)
}
