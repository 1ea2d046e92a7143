//go:build bench

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// everything is a policy with all features of the agent enabled.
const everything = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: everything}
spec:
  mode: Enforce
  weight: {max: 262144}
  cpu: {waterline: 100%, suppression: OnHarm}
  protect: {burst: true, memory: true, interference: true, eviction: {}}
`

// TestAPIProtectFigures measures the agent's cost on a full node with all features enabled. Half of the pods are batch.
// First no pod works. Then some online pods do, in bursts, and batch uses the rest.
func TestAPIProtectFigures(t *testing.T) {
	idle := 10 * time.Second
	if benchFile != "" {
		idle = 2 * time.Minute
	}
	c := newCrowd(t)
	kubectl(t, "patch", "node", fakeNode, "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status":{"allocatable":{"cpu":"%[1]d"},"capacity":{"cpu":"%[1]d"}}}`, runtime.NumCPU()))
	policy := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(policy, []byte(everything), 0o600); err != nil {
		t.Fatal(err)
	}
	batch, online := c.fillWithBatch(55), c.fillWithLimits(54)
	pid := c.agent("--config", policy)
	c.converge()
	metrics := map[string]float64{"idle_seconds": idle.Seconds()}
	c.cost(pid, idle, "110", metrics)

	const fits = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; busybox sleep 0.1; done"
	for _, containers := range online[:4] {
		c.exec(containers[0], "", "busybox", "sh", "-c", fits)
	}
	burners := batch[:runtime.NumCPU()]
	for _, containers := range burners {
		c.exec(containers[0], "", "busybox", "sh", "-c", "while :; do :; done")
	}
	for _, containers := range burners {
		dir := filepath.Dir(containers[0])
		eventually(t, "that batch is suppressed", func() (bool, string) {
			quota := c.get(dir, model.Quota)
			return quota > 0, fmt.Sprintf("%s has quota %d", dir, quota)
		})
	}
	c.cost(pid, idle, "110_busy", metrics)

	c.judge("protect", metrics, map[string]float64{
		"cpu_millicores_110": 20, "cpu_millicores_110_busy": 60, "rss_mib_110": 40, "rss_mib_110_busy": 40,
	})
}

// fillWithBatch makes batch pods.
func (c *crowd) fillWithBatch(pods int) (containers [][2]string) {
	c.t.Helper()
	for i := range pods {
		list := corev1.ResourceList{v1alpha1.ResourceBatchCPU: resource.MustParse("100")}
		dir, _ := c.createIn(model.BestEffort, metav1.ObjectMeta{Name: fmt.Sprintf("batch-%d", i),
			Labels: map[string]string{v1alpha1.LabelQoS: "BE"}},
			corev1.ResourceRequirements{Requests: list, Limits: list})
		c.pods, c.shares = append(c.pods, dir), append(c.shares, model.MilliCPUToShares(100))
		containers = append(containers, c.run(dir))
	}
	return containers
}

// fillWithLimits makes annotated online pods with a CPU limit.
func (c *crowd) fillWithLimits(pods int) (containers [][2]string) {
	c.t.Helper()
	for i := range pods {
		shares := c.someShares()
		limited := request("5m")
		limited.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
		dir, _ := c.create(fmt.Sprintf("crowd-%d", i), weigh(shares), limited)
		c.pods, c.shares = append(c.pods, dir), append(c.shares, shares)
		containers = append(containers, c.run(dir))
	}
	return containers
}
