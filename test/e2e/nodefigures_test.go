//go:build bench

package e2e_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// TestNodeFigures measures what [TestNode] shows the values of.
func TestNodeFigures(t *testing.T) {
	n := install(t)
	n.sub("Weights", (*node).measureWeights)
	if bothNodes() {
		n.sub("Life", func(n *node) { n.testLife(); n.most(foreignAfterRestart, 5) })
	}
	if *on == "vm" {
		n.sub("Systemd", (*node).measureSystemd)
	}
}

// most checks that a figure was measured, and is at most a value.
func (n *node) most(name string, most float64) {
	n.t.Helper()
	if is, measured := n.measured[name]; !measured || is > most {
		n.t.Errorf("%s is %.2f (measured: %v), want %v at most", name, is, measured, most)
	}
}

// measureWeights checks that two pods with equal requests, annotated 1:2, share the CPU 1:2, also while the kubelet
// rewrites its files.
func (n *node) measureWeights() {
	want := n.weighted()
	a, b := want[0].dir, want[1].dir
	periods := 10 * time.Minute // ten of the kubelet's writes
	if *on == "vm" {            // testSystemd causes the kubelet's writes
		periods = 20 * time.Second
	}
	// An agent whose process stood still when the kubelet wrote was late once. An agent that does not watch is late every
	// time.
	wrong := repeat(n.t, 3, func(int) (values map[string]float64, wrong string) {
		usedA, usedB := n.usage(a), n.usage(b)
		found := n.watchWhile(periods, func() {}, want...)
		moreA, moreB := n.usage(a)-usedA, n.usage(b)-usedB // in the same order, so that both have the same length
		ratio := float64(moreB) / float64(moreA)
		n.t.Logf("CPU ratio %.3f over %s; foreign values in a, b and class: %v", ratio, periods, found)
		if long := slices.ContainsFunc(found, func(f foreign) bool { return f.total > periods/200 }); long || ratio < 1.8 ||
			ratio > 2.2 {
			wrong = fmt.Sprintf("the CPU ratio is %.3f, want 2; files had foreign values for %v of %s, want a 200th at most",
				ratio, found, periods)
		}
		return map[string]float64{"ratio": ratio}, wrong
	})
	if wrong != "" {
		n.t.Error(wrong)
	}
}

// usage returns the CPU time that a group has used.
func (n *node) usage(dir string) time.Duration {
	n.t.Helper()
	file, unit := n.Path+"/../cpuacct/"+dir+"/cpuacct.usage", time.Nanosecond
	if n.Version == cgroup.V2 {
		file, unit = n.Path+"/"+dir+"/cpu.stat", time.Microsecond
	}
	content, err := n.readFile(file)
	if err != nil {
		n.t.Fatal(err)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(string(content), "usage_usec "), "\n")
	used, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		n.t.Fatal(err)
	}
	return time.Duration(used) * unit
}

// measureSystemd checks how long foreign values remain that systemd and the kubelet write.
func (n *node) measureSystemd() {
	const longest = 2 * time.Second // on an emulated CPU; real ones take milliseconds
	want := n.reverted()
	for _, c := range n.reverts() {
		// If the agent stood still just then, the result proves nothing. An agent that does not watch is late every time.
		wrong := repeat(n.t, 3, func(int) (values map[string]float64, wrong string) {
			seconds := 0.0
			for _, f := range n.repaired(c, want) {
				seconds = max(seconds, f.longest.Seconds())
			}
			if seconds > longest.Seconds() {
				wrong = fmt.Sprintf("%s: foreign values remained for %.2f s, want %s at most", c.what, seconds, longest)
			}
			return map[string]float64{"seconds": seconds}, wrong
		})
		if wrong != "" {
			n.t.Error(wrong)
		}
	}
}

// TestNodeNRIFigures measures the slowest answer to a container runtime, which waits for two seconds.
func TestNodeNRIFigures(t *testing.T) {
	n := install(t)
	if _, isGuest := n.machine.(guest); isGuest {
		t.Skip("a plugin on this machine cannot reach that runtime")
	}
	p := newPlacer(t)
	p.put("nri-first", "1")
	if cpus := n.firstAct("nri-first"); cpus != "1" {
		t.Errorf("placed on CPU 1, the first instruction of a container ran on %s", cpus)
	}
	// It takes 3 ms where the process does not stand still.
	if slowest := p.Stats().Slowest; slowest > 2*time.Second {
		t.Errorf("the slowest answer took %s", slowest)
	}
}

// TestNodeSellFigures measures how soon an offer is withdrawn or falls, and how many pods are bound in between.
func TestNodeSellFigures(t *testing.T) {
	oneNode(t, "offers are the same there")
	n := seller(t)
	n.sub("Lost", func(n *node) { n.testLost(); n.most(withdrawnAfter, 90) })
	n.sub("Race", func(n *node) {
		n.testRace()
		// The scheduler has one pod in progress, and binds another before it receives the patch. A slow machine adds more.
		n.most(beyondPerFall, 4)
		n.most(refusedPerFall, 4)
	})
	n.sub("Koordinator", func(n *node) {
		n.testSold(true, (*node).fallAway)
		// An agent tries again after 16 s at most; with client-go's default, after a minute.
		n.most(fallsAfterOutage, 30)
	})
}
