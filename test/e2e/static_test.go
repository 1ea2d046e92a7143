package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestStaticPool follows the CPUs that a real kubelet with the CPU manager policy static assigns: in the kubelet's own
// report, in the state of the agent on the node, and in the kernel. A pod with an exclusive CPU comes, the kubelet
// restarts, and the pod goes.
func TestStaticPool(t *testing.T) {
	if *on != "static" {
		t.Skip("this kubelet assigns no CPUs; run with -args -on=static")
	}
	n := install(t)
	socket, err := bed.PodResources()
	if err != nil {
		t.Fatal(err)
	}
	client := kube.NewPodResources(socket)
	list, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	online, err := model.ParseCPUs(string(list))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(taken model.CPUSet) {
		t.Helper()
		var pool model.CPUPool
		eventually(t, "the kubelet reports its CPUs", func() (bool, string) {
			var err error
			pool, err = client.CPUPool(t.Context())
			return err == nil, fmt.Sprint(err)
		})
		if pool.Allocatable.Len() != online.Len()-1 || !pool.Allocatable.Within(online) || pool.Taken != taken {
			t.Errorf("of CPUs %s, the kubelet can assign %s and has assigned %s, want all except one, and %s", online,
				pool.Allocatable, pool.Taken, taken)
		}
		eventually(t, "the agent knows the CPUs", func() (bool, string) {
			all := kubelets(t, time.Time{})
			if len(all) == 0 {
				return false, "no rounds"
			}
			k := all[len(all)-1]
			return k.PoolKnown && k.ReservedMilli == 500 && k.AllocatableCPUs == pool.Allocatable && k.TakenCPUs == taken,
				fmt.Sprintf("%+v", k)
		})
	}
	expect(model.CPUSet{})

	const own = "requests: {cpu: 1, memory: 32Mi}, limits: {cpu: 1, memory: 32Mi}"
	n.run("own", "", own, false)
	dir, _ := n.container("own")
	taken := n.cpus(dir)
	if taken.Len() != 1 {
		t.Fatalf("the pod runs on %q", taken)
	}
	expect(taken)
	_, before := kubeletsUntil(t, time.Time{})
	n.mustRestart("kubelet")
	starting, early, without := 0, 0, 0
	// There are two calls at a time, and the kubelet accepts a hundred a second.
	named := false // the pod, since the restart
	look := func() {
		pool, err := client.CPUPool(t.Context())
		named = named || err == nil && pool.Pods["default/own"]
		switch {
		case err != nil && strings.Contains(err.Error(), "has not started yet"):
			starting++
		case err == nil && pool.Pods["default/own"] && pool.Taken != taken:
			without++
		case err == nil && !pool.Pods["default/own"]:
			early++
		}
	}
	for range 600 {
		look()
		time.Sleep(25 * time.Millisecond)
	}
	eventually(t, "the kubelet reports the pod", func() (bool, string) { look(); return named, "" })
	t.Logf("after its restart, the kubelet reported no CPUs at all %d times, and no such pod %d times", starting,
		early)
	if without > 0 {
		t.Errorf("it reported the pod without its CPU %d times", without)
	}
	expect(taken)
	since := kubelets(t, before)
	if len(since) == 0 {
		t.Error("the journal has no round since the kubelet restarted")
	}
	for _, k := range since {
		if k.PoolKnown && k.TakenCPUs != taken {
			t.Errorf("while the kubelet restarted, the agent considered %q taken", k.TakenCPUs)
		}
	}
	t.Logf("in %d rounds since then, the agent never considered the CPU free", len(since))

	kubectl(t, "delete", "pod", "own", "--grace-period=1")
	eventually(t, "the kubelet has the CPU back", func() (bool, string) {
		pool, err := client.CPUPool(t.Context())
		return err == nil && pool.Taken.Empty(), fmt.Sprint(pool, err)
	})
	expect(model.CPUSet{})
}

// kubelets returns the kubelet in each of the agent's rounds after a time.
func kubelets(t *testing.T, after time.Time) []model.Kubelet {
	t.Helper()
	all, _ := kubeletsUntil(t, after)
	return all
}

// kubeletsUntil returns the time of the last round too.
func kubeletsUntil(t *testing.T, after time.Time) (all []model.Kubelet, last time.Time) {
	t.Helper()
	for round, err := range journal.Read(bed.RunWaterline()) {
		if err == nil && round.Node.Now.After(after) {
			all, last = append(all, round.Node.Kubelet), round.Node.Now
		}
	}
	return all, last
}

// cpus returns the CPUs of a cgroup.
func (n *node) cpus(dir string) model.CPUSet {
	n.t.Helper()
	cpus, err := n.tryCPUs(dir)
	if err != nil {
		n.t.Fatal(err)
	}
	return cpus
}

// tryCPUs is cpus for a cgroup that may be gone.
func (n *node) tryCPUs(dir string) (model.CPUSet, error) {
	content, err := n.readFile(filepath.Join(n.Cpusets, dir, cgroup.EffectiveFile(n.Version)))
	if err != nil {
		return model.CPUSet{}, err
	}
	return model.ParseCPUs(string(content))
}
