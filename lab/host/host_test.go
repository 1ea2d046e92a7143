package host

import (
	"math"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/dataset"
)

var four = model.Amount{CPU: 4000, Memory: 8 << 30}

// TestMeasure: between its values a trace is a line, its end is followed by its begin, and memory keeps its ups and
// downs.
func TestMeasure(t *testing.T) {
	m := &dataset.Machine{
		Times: []int64{100, 200, 400}, Parts: [][]float64{{10, 30, 50}}, Limits: []float64{100},
		Memory: []float64{90, 90, 80},
	}
	h := New(m, four, 50, 1)
	for _, c := range []struct {
		after  time.Duration
		milli  int64
		memory float64
	}{{0, 800, 0.4}, {50 * time.Second, 1200, 0.4}, {150 * time.Second, 1600, 0.35}, {250 * time.Second, 400, 0.4}} {
		l := h.Measure(c.after)
		if got := l.Node.CPU.Milli; got != c.milli || l.Classes[model.Guaranteed].CPU.Milli != got ||
			l.Node.CPU.At != l.Clock {
			t.Errorf("after %v: %d mCPU, want %d", c.after, got, c.milli)
		}
		if got := float64(l.Node.Memory.WorkingSet) / (8 << 30); math.Abs(got-c.memory) > 1e-6 {
			t.Errorf("after %v: %.3f of the memory, want %.3f", c.after, got, c.memory)
		}
	}
	h.Extra = 0.9
	if got := h.Measure(0).Node.CPU.Milli; got != 4000 {
		t.Errorf("%d mCPU are used of 4000", got)
	}
}

// TestNoiseFades: machines that are measured seldom wander as far in the same time.
func TestNoiseFades(t *testing.T) {
	m := &dataset.Machine{Times: []int64{0, 1 << 30}, Parts: [][]float64{{50, 50}}, Limits: []float64{100}}
	h := New(m, four, 0, 1)
	h.Noise = 0.1
	const n = 50_000
	together, squares, last := 0.0, 0.0, 0.0
	for i := range n {
		v := float64(h.Measure(time.Duration(i)*10*time.Second).Node.CPU.Milli)/2000 - 1
		together, squares, last = together+v*last, squares+v*v, v
	}
	if alike := together / squares; math.Abs(alike-1/math.E) > 0.05 {
		t.Errorf("after ten seconds noise is alike by %.2f, want 1/e", alike)
	}
}

// TestNoise: noise has the spread that is asked for and changes no mean; a clone has its own.
func TestNoise(t *testing.T) {
	m := &dataset.Machine{Times: []int64{0, 1 << 30}, Parts: [][]float64{{50, 50}}, Limits: []float64{100}}
	h := New(m, four, 0, 1)
	h.Noise = 0.1
	clone := h.Clone(2)
	const n = 200_000
	sum, squares, equal := 0.0, 0.0, 0
	for i := range n {
		v := float64(h.Measure(time.Duration(i)*time.Second).Node.CPU.Milli) / 2000
		sum, squares = sum+v, squares+v*v
		if clone.Measure(time.Duration(i)*time.Second).Node.CPU.Milli == int64(v*2000) {
			equal++
		}
	}
	mean := sum / n
	if spread := math.Sqrt(squares/n - mean*mean); math.Abs(mean-1) > 0.01 || math.Abs(spread-0.1) > 0.01 || equal > n/50 {
		t.Errorf("mean %.3f, spread %.3f; a clone used the same %d times", mean, spread, equal)
	}
}
