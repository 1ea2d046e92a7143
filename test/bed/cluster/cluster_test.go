package cluster_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/test/bed/cluster"
	"github.com/waterline-io/waterline/test/poll"
)

// TestAPIKilled is [TestNodeKilled] without a node, which makes no cgroup and no directory: there may be another
// cluster's.
func TestAPIKilled(t *testing.T) { killed(t, cluster.Options{}, "wlbed1") }

// TestNodeKilled checks that a cluster that is killed leaves nothing: no process, no device, no cgroup, no directory,
// no lock.
func TestNodeKilled(t *testing.T) { killed(t, cluster.Options{Node: true}, "wlbed0") }

// killed brings a cluster up, whose end of a veth pair has that name on this machine, and kills it.
func killed(t *testing.T, o cluster.Options, veth string) {
	bin, err := filepath.Abs("../../../out/bed/bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bin, "bed")); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("the bed is not built, or this is not root")
		}
		t.Skip("the bed is not built, or this is not root")
	}
	o.Bin, o.Leash = bin, true
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	tunable := func() string {
		content, _ := os.ReadFile("/proc/sys/vm/overcommit_memory")
		return string(content)
	}
	before := tunable()
	var absent []string
	for _, dir := range []string{"/run/waterline", "/var/lib/kubelet", "/var/lib/waterline"} {
		if _, err := os.Stat(dir); err != nil && o.Node {
			absent = append(absent, dir)
		}
	}
	bed, err := cluster.Up(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Down(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if out, err := bed.Kubectl(ctx, "get", "--raw", "/readyz").CombinedOutput(); err != nil {
		t.Errorf("the API server: %v: %s", err, out)
	}
	dir := filepath.Dir(bed.Kubeconfig())
	if _, err := cluster.Up(ctx, o); err == nil || !strings.Contains(err.Error(), "a cluster is up") {
		t.Errorf("a second cluster: %v", err)
	}
	if now := tunable(); now != before {
		t.Errorf("vm.overcommit_memory was %q and is %q", before, now)
	}
	text, err := os.ReadFile(filepath.Join(dir, "init.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	left := func() []string {
		var left []string
		if o.Node {
			left, _ = filepath.Glob("/sys/fs/cgroup/*" + cluster.CgroupRoot)
		}
		if _, err := net.InterfaceByName(veth); err == nil {
			left = append(left, veth)
		}
		for _, dir := range absent {
			if _, err := os.Stat(dir); err == nil {
				left = append(left, dir)
			}
		}
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range lines {
			if line, _ := os.ReadFile(file); strings.Contains(string(line), dir) && !strings.Contains(string(line), "sweep") {
				left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		return left
	}
	if !poll.Until(5*time.Minute, 50*time.Millisecond, func() bool { return len(left()) == 0 }) {
		t.Errorf("after a kill there is still %q", left())
	}
}
