//go:build bench

package e2e_test

import (
	"testing"
	"time"
)

// TestAPIHandoverFigures measures how soon another replica leads, after one that ended in good order.
func TestAPIHandoverFigures(t *testing.T) {
	if took := handOver(t); took > 12*time.Second { // a Lease that was not released is valid for 15 s
		t.Errorf("this took %s", took)
	}
}
