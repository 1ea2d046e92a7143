//go:build bench

package e2e_test

import "testing"

// TestSparkNativeFigures counts the tasks that run again after an eviction. On a busy machine some may, because an
// executor ends while a stage still starts tasks.
func TestSparkNativeFigures(t *testing.T) {
	if tasks := sparkNative(t); len(tasks.Again) > 0 {
		t.Errorf("%d of %d tasks ran again: %v", len(tasks.Again), tasks.Tasks, tasks.Why())
	}
}
