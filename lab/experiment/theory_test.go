package experiment

import (
	"math"
	"testing"
)

// The expected values are worked by hand in the reference on the kubelet's hierarchy: a node of 64 CPUs, all busy.
func TestTheory(t *testing.T) {
	const busy = 1000
	pod := func(name string, weight float64) group { return group{name: name, weight: weight, threads: busy} }
	class := func(weight float64, pods ...group) group {
		return group{name: "class", weight: weight, children: pods}
	}
	root := func(groups ...group) group { return group{name: "kubepods", children: groups} }
	for _, tc := range []struct {
		name string
		cpus float64
		root group
		want map[string]float64
	}{
		{"one pod of 1 CPU beside 48 guaranteed", 64, root(pod("g", 49152), class(1024, pod("a", 1024)), class(2, pod("e",
			2))),
			map[string]float64{"a": 1.31}},
		{"the pod's weight alone changes nothing", 64, root(pod("g", 49152), class(1024, pod("a", 4096)), class(2, pod("e",
			2))),
			map[string]float64{"a": 1.31}},
		{"nor does the container's", 64, root(pod("g", 49152), class(1024, group{name: "pod", weight: 1024,
			children: []group{pod("a", 4096)}}), class(2, pod("e", 2))),
			map[string]float64{"a": 1.31}},
		{"with its class raised it does", 64, root(pod("g", 49152), class(4096, pod("a", 4096)), class(2, pod("e", 2))),
			map[string]float64{"a": 4.92}},
		{"two equal pods, one with twice the weight", 2, root(class(2048, pod("light", 8192), pod("heavy", 16384))),
			map[string]float64{"light": 2.0 / 3, "heavy": 4.0 / 3}},
		{"an arrival of 262144 among three of 10240", 1, root(class(2048, pod("a", 10240), pod("b", 10240), pod("c", 10240),
			pod("new", 262144))),
			map[string]float64{"a": 0.0350, "new": 0.8951}},
		{"a class without load leaves everything to the others", 2, root(pod("g", 1024), class(1024, group{name: "idle",
			weight: 102400})),
			map[string]float64{"g": 2, "idle": 0}},
		{"one thread uses no more than one CPU", 4, root(class(2048, group{name: "one", weight: 262144, threads: 1},
			pod("rest", 2))),
			map[string]float64{"one": 1, "rest": 3}},
	} {
		got := divideCPUs(tc.cpus, tc.root)
		for name, want := range tc.want {
			if math.Abs(got[name]-want) > 0.006*max(want, 0.1) {
				t.Errorf("%s: %s gets %.4f CPUs, not %.4f", tc.name, name, got[name], want)
			}
		}
	}
}
