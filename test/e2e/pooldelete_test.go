package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestAPIPoolNames has a pool whose Service has the name of another's. The Service stays as it is, the pool says so and
// makes no pod, and works as soon as the name is free. The ResourceManager of a second pool never answers: the pool
// goes when it is deleted, also where the manager's Role has gone, as at the end of a namespace.
func TestAPIPoolNames(t *testing.T) {
	y := newYard(t)
	y.manager("--pools="+poolNamespace, "--lost-after", "1m", "--fresh-within", "25s")
	const shop = `
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: ` + poolNamespace + `}
spec: {selector: {app: shop}, ports: [{port: 80}]}
`
	if out, err := tryApply(shop); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _, _ = tryKubectl("delete", "service", "shop", "-n", poolNamespace, "--ignore-not-found") })
	p := y.rm(t, "shop", "elastic", quick, 10*time.Second, time.Minute)
	y.offer(t, "shop-n-1", "shop", cpuMemory(8, 16))
	y.create(t, specOf("shop", p.address, ""))
	y.complains(t, "shop", v1alpha1.ConditionStepsFailed, "ApplyFailed")
	service := kubectl(t, "get", "service", "shop", "-n", poolNamespace,
		"-o", "jsonpath={.spec.selector} {.metadata.ownerReferences}")
	if want := `{"app":"shop"}`; strings.TrimSpace(service) != want {
		t.Errorf("the Service is %s, want %s", service, want)
	}
	if pods := kubectl(t, "get", "pods", "-n", poolNamespace, "-l", v1alpha1.LabelPool+"=shop", "-o", "name"); pods != "" {
		t.Errorf("pods: %s", pods)
	}
	kubectl(t, "delete", "service", "shop", "-n", poolNamespace)
	y.active(t, "shop", 1)

	y.offer(t, "typo-n-1", "typo", cpuMemory(8, 16))
	y.create(t, specOf("typo", "http://127.0.0.1:9", ""))
	y.complains(t, "typo", v1alpha1.ConditionRMUnreachable, "NoAnswer")
	if status := y.request(http.MethodDelete, poolPath+"typo", ""); status != http.StatusOK {
		t.Fatalf("deleting a pool: status %d", status)
	}
	gone := func(name string) {
		t.Helper()
		eventually(t, "pool "+name+" goes", func() (bool, string) {
			p := y.poolOf(t, name)
			return p.Name == "", fmt.Sprintf("%v %+v", p.Finalizers, p.Status)
		})
	}
	gone("typo")

	y.create(t, specOf("left", "http://127.0.0.1:9", ""))
	y.complains(t, "left", v1alpha1.ConditionRMUnreachable, "NoAnswer")
	kubectl(t, "delete", "rolebinding", "waterline-pools", "-n", poolNamespace)
	y.request(http.MethodDelete, poolPath+"left", "")
	gone("left")
}
