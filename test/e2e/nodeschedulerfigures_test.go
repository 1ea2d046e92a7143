//go:build bench

package e2e_test

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/lab/measure"
)

// TestNodeSchedulerFigures measures what pods that the scheduler bound get of the CPUs, while all of them want more:
// two with a weight, and one without. It is compared with what the scheduler's arithmetic expects. Parts of what the
// pods get together count, because other programs run on this machine too.
func TestNodeSchedulerFigures(t *testing.T) {
	rounds, seconds := 1, 20
	if benchFile != "" {
		rounds, seconds = 5, 60
	}
	n := scheduledNode(t)
	busy := map[string]int{"heavy": 0, "light": 1, "plain": 2} // in the order of the results
	n.scheduled("heavy", `annotations: {waterline.io/cpu-share: "1024"}`, "requests: {cpu: 50m}", burning)
	n.scheduled("light", `annotations: {waterline.io/cpu-share: "512"}`, "requests: {cpu: 50m}", burning)
	n.scheduled("plain", "labels: {a: b}", "requests: {cpu: 200m}", burning)
	for name := range busy {
		kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, ready)
	}
	n.expectShares("heavy", "light", "plain")

	tree, pods, weights := n.arithmetic()
	dirs, expected := make([]string, len(busy)), make([]float64, len(busy))
	for i := range pods {
		if at, is := busy[pods[i].Name]; is {
			dirs[at] = n.dirOf(&pods[i])
		} else {
			weights[i].Limit, weights[i].Unlimited = 1, false // it wants next to nothing
		}
	}
	for i, milli := range place.Expect(&tree, weights) {
		if at, is := busy[pods[i].Name]; is {
			expected[at] = float64(milli)
		}
	}
	parts(expected)
	ratios := make([][]float64, len(busy)) // of what each got to what was expected
	for range rounds {
		got := make([]float64, len(busy))
		for i, dir := range dirs {
			got[i] = -n.usage(dir).Seconds()
		}
		time.Sleep(time.Duration(seconds) * time.Second)
		for i, dir := range dirs {
			got[i] += n.usage(dir).Seconds()
		}
		parts(got)
		t.Logf("parts of the CPU: %.3f, expected %.3f", got, expected)
		for i := range got {
			ratios[i] = append(ratios[i], got[i]/expected[i])
		}
	}
	heavy, light := measure.Median(ratios[busy["heavy"]]), measure.Median(ratios[busy["light"]])
	metrics := map[string]float64{
		"rounds": float64(rounds), "seconds": float64(seconds),
		"heavy_expected_part": expected[busy["heavy"]], "light_expected_part": expected[busy["light"]],
		"heavy_over_expected": heavy, "light_over_expected": light,
		"plain_over_expected": measure.Median(ratios[busy["plain"]]), "weighted_least_over_expected": min(heavy, light),
	}
	if least := metrics["weighted_least_over_expected"]; least < 0.8 {
		t.Errorf("a pod with a weight got %.2f of what the scheduler's arithmetic expects", least)
	}
	noCrowd(t).judge("scheduler-node", metrics, map[string]float64{
		"heavy_over_expected": 1.2, "light_over_expected": 1.2, "plain_over_expected": 1.4,
	})
}

// parts divides values by their sum, in place.
func parts(of []float64) {
	var sum float64
	for _, v := range of {
		sum += v
	}
	for i := range of {
		of[i] /= sum
	}
}
