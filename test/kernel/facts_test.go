package kernel_test

import (
	"errors"
	"maps"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// TestShares records how the kernel treats weights. The conversions rely on it.
func TestShares(t *testing.T) {
	n := newNode(t)
	dir := n.pod(model.Burstable, "a", 100)
	file := cgroup.FileName(n.mount.Version, model.Shares)
	type outcome struct {
		text  string
		reads string
		err   error
	}
	cases := []outcome{ // v1 clamps without an error
		{"0", "2", nil}, {"1", "2", nil}, {"2", "2", nil}, {"262144", "262144", nil}, {"262145", "262144", nil},
		{"x", "262144", unix.EINVAL},
	}
	if n.mount.Version == cgroup.V2 {
		cases = []outcome{{"1", "1", nil}, {"10000", "10000", nil}, {"0", "10000", unix.ERANGE},
			{"10001", "10000", unix.ERANGE}, {"x", "10000", unix.EINVAL}}
	}
	for _, c := range cases {
		t.Run(c.text, func(t *testing.T) {
			err := n.tryText(dir, file, c.text)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || n.text(dir, file) != c.reads {
				t.Errorf("writing: %v, reads %q; want %+v", err, n.text(dir, file), c)
			}
		})
	}
}

// TestIdle records that an idle group accepts no weight, and which value its weight file has.
func TestIdle(t *testing.T) {
	n := newNode(t)
	dir := n.pod(model.BestEffort, "a", 0)
	if err := n.tryText(dir, cgroup.FileName(n.mount.Version, model.Idle), "1"); errors.Is(err, os.ErrNotExist) {
		t.Skip("kernel before 5.15: no cpu.idle")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := n.try(dir, model.Shares, 2048); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a weight on an idle group: %v, want EINVAL", err)
	}
	want := int64(3)
	if n.mount.Version == cgroup.V2 {
		want = cgroup.IdleWeight
	}
	if got := n.raw(dir, model.Shares); got != want {
		t.Errorf("an idle group's weight reads %d, want %d", got, want)
	}
	if err := n.tryText(dir, cgroup.FileName(n.mount.Version, model.Idle), "0"); err != nil {
		t.Fatal(err)
	}
	want = 1024
	if n.mount.Version == cgroup.V2 {
		want = 100
	}
	if got := n.raw(dir, model.Shares); got != want {
		t.Errorf("after idle, the weight is %d, want the default %d", got, want)
	}
}

// TestBurstOfQuota records that a group's burst never exceeds its quota, whichever of the two is written.
func TestBurstOfQuota(t *testing.T) {
	n := newNode(t)
	dir := n.pod(model.Burstable, "a", 100)
	if n.raw(dir, model.Burst) == -2 {
		t.Skip("kernel before 5.14: no bursts")
	}
	if got := n.raw(dir, model.Burst); got != 0 {
		t.Errorf("a new group has a burst of %d", got)
	}
	n.set(dir, model.Burst, 200_000) // without a quota, any burst
	if err := n.try(dir, model.Quota, 100_000); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a first quota below the burst: %v, want EINVAL", err)
	}
	n.set(dir, model.Burst, 100_000)
	n.set(dir, model.Quota, 100_000)
	if err := n.try(dir, model.Burst, 100_001); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a burst above the quota: %v, want EINVAL", err)
	}
	if err := n.try(dir, model.Quota, 99_999); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a quota below the burst: %v, want EINVAL", err)
	}
	n.set(dir, model.Quota, model.Unlimited)
	if got := n.raw(dir, model.Burst); got != 100_000 {
		t.Errorf("without a quota, the burst reads %d", got)
	}
}

// TestQuota records which quotas the kernel refuses.
func TestQuota(t *testing.T) {
	n := newNode(t)
	dir := n.pod(model.Burstable, "a", 100, "0123456789ab")
	child := dir + "/0123456789ab"
	if err := n.try(dir, model.Quota, 999); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a quota below 1 ms: %v, want EINVAL", err)
	}
	n.set(dir, model.Quota, 50_000)
	err := n.try(child, model.Quota, 60_000)
	if n.mount.Version == cgroup.V1 && !errors.Is(err, unix.EINVAL) {
		t.Errorf("v1: a child's quota above its parent's: %v, want EINVAL", err)
	}
	if n.mount.Version == cgroup.V2 && err != nil {
		t.Errorf("v2: a child's quota above its parent's: %v, want none", err)
	}
	n.set(dir, model.Quota, model.Unlimited)
	n.set(child, model.Quota, 60_000)
	err = n.try(dir, model.Quota, 50_000)
	if (n.mount.Version == cgroup.V1) != errors.Is(err, unix.EINVAL) {
		t.Errorf("a parent's quota below its child's: %v", err)
	}
}

// TestGone records that a removed group gives ENODEV through an open file and ENOENT through its path.
func TestGone(t *testing.T) {
	n := newNode(t)
	dir := n.pod(model.Burstable, "a", 100)
	f, err := os.OpenFile(n.path(dir, cgroup.FileName(n.mount.Version, model.Shares)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n.remove(dir)
	if _, err := f.WriteString("100"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("writing: %v, want ENODEV", err)
	}
	if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, unix.ENODEV) {
		t.Errorf("reading: %v, want ENODEV", err)
	}
	if err := n.try(dir, model.Shares, 100); !errors.Is(err, unix.ENOENT) {
		t.Errorf("by path: %v, want ENOENT", err)
	}
}

// TestWatch records the events that one watch on a directory reports for its files.
func TestWatch(t *testing.T) {
	n := newNode(t)
	dir := n.pod(model.Burstable, "a", 100)
	w, err := host.NewWatcher(n.mount.Version)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = w.Run(t.Context()) }()
	if err := w.Add(host.Group{Mount: n.mount.Path, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	shares, quota := model.File{Dir: dir, Knob: model.Shares}, model.File{Dir: dir, Knob: model.Quota}
	var seen host.Changes
	// reported runs an action and returns its events: all events before the one of a later write to another file.
	reported := func(do func()) host.Changes {
		all := host.Changes{Files: map[model.File]struct{}{}}
		do()
		n.set(dir, model.Quota, model.Unlimited)
		for {
			select {
			case <-w.Wake():
			case <-time.After(30 * time.Second):
				t.Fatal("a write is not reported")
			}
			w.Take(&seen)
			maps.Copy(all.Files, seen.Files)
			all.Tree = all.Tree || seen.Tree
			if _, done := all.Files[quota]; done {
				return all
			}
		}
	}
	for _, c := range []struct {
		what string
		do   func()
		want bool
	}{
		{"a write", func() { n.set(dir, model.Shares, 2048) }, true},
		{"a write that changes nothing", func() { n.set(dir, model.Shares, 2048) }, true},
		{"a write that the kernel refuses",
			func() { _ = n.tryText(dir, cgroup.FileName(n.mount.Version, model.Shares), "x") }, false},
		{"a read", func() { n.raw(dir, model.Shares) }, false},
		{"a write of cpu.idle, which changes the weight that is read", func() {
			_ = n.tryText(dir, cgroup.FileName(n.mount.Version, model.Idle), "1")
			_ = n.tryText(dir, cgroup.FileName(n.mount.Version, model.Idle), "0")
		}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			if _, got := reported(c.do).Files[shares]; got != c.want {
				t.Errorf("reported as a write of the weight: %v, want %v", got, c.want)
			}
		})
	}
	if got := reported(func() { _ = os.Mkdir(n.path(dir, "0123456789ab"), 0o755) }); !got.Tree {
		t.Error("a new directory is not reported")
	}
	if got := reported(func() { n.remove(dir + "/0123456789ab") }); !got.Tree {
		t.Error("a directory's removal is not reported")
	}
}
