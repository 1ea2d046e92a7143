//go:build bench

package e2e_test

import "testing"

// TestYARNPoolFigures measures how long the kubelet takes to show a container the annotation that a guard reads.
func TestYARNPoolFigures(t *testing.T) {
	p := newNight(t)
	p.sub("Allowance", (*night).allowances)
	// Half of a deadline of a minute, for which a guard must know the allowance.
	p.most(annotationSeen, 30)
}
