package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/checkpoint"
	"github.com/waterline-io/waterline/internal/model"
)

var shares = model.File{Dir: "kubepods/burstable/poda", Knob: model.Shares}

func raw(n int64) cgroup.Raw { return cgroup.Raw{Number: n} }

func open(t *testing.T, path string) *Undo {
	t.Helper()
	u, err := OpenUndo(path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUndoKeepsTheirs walks the record through what happens to a file, opening it anew at most steps, as after a kill.
func TestUndoKeepsTheirs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "undo")
	var u *Undo
	for i, step := range []struct {
		found, ours int64
		inode       uint64
		wrote       bool // the write after the record was carried out
		theirs      int64
		runs        bool // no kill before this step
	}{
		{102, 2048, 1, true, 102, false},   // the first write
		{2048, 4096, 1, true, 102, false},  // we change our mind
		{512, 4096, 1, true, 512, false},   // another writer
		{4096, 8192, 1, false, 512, false}, // killed between record and write ...
		{4096, 9000, 1, false, 512, false}, // ... twice, with another plan each time ...
		{4096, 8192, 1, true, 512, false},  // ... what is found is still ours
		{8192, 1000, 1, false, 512, false},
		{600, 1000, 1, true, 600, false},  // killed, and another writer while we were dead
		{102, 1000, 2, true, 102, false},  // a new cgroup of the same name
		{1000, 2000, 2, false, 102, true}, // the kernel refuses the write ...
		{1000, 3000, 2, false, 102, true}, // ... twice, with another plan each time, and without a kill ...
		{1000, 4000, 2, true, 102, true},  // ... what is found is still ours
		{4000, 5000, 2, false, 102, true},
		{700, 6000, 2, false, 700, true},  // another writer between two refusals
		{5000, 7000, 2, false, 700, true}, // its next value equals one that we never wrote, and is not noticed
		{800, 7000, 2, true, 800, true},   // the one after that is
	} {
		if !step.runs {
			u = open(t, path)
		}
		u.Take(shares, step.inode, raw(step.found), raw(step.ours))
		if u.Safe(shares, step.inode) && i == 0 {
			t.Error("a record that is not on disk counts as safe")
		}
		if err := u.Save(); err != nil {
			t.Fatal(err)
		}
		if !u.Safe(shares, step.inode) {
			t.Errorf("step %d: not safe after saving", i)
		}
		if step.wrote {
			u.Wrote(shares)
			if err := u.Save(); err != nil {
				t.Fatal(err)
			}
		}
		if r, ok := open(t, path).Get(shares, step.inode); !ok || r.Theirs != raw(step.theirs) || r.Ours != raw(step.ours) {
			t.Errorf("step %d: on record is %+v, want theirs %d, ours %d", i, r, step.theirs, step.ours)
		}
	}
	if _, ok := open(t, path).Get(shares, 1); ok {
		t.Error("the record of a cgroup that is gone still counts")
	}
}

// TestUndoPeriods checks that quotas are on disk as numbers, which older versions read too, with their periods beside
// them. Quotas with periods in them, as written for a time, are read as well.
func TestUndoPeriods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "undo")
	quota := func(n, period int64) cgroup.Raw { return cgroup.Raw{Number: n, Period: period} }
	file := model.File{Dir: "kubepods/burstable/poda", Knob: model.Quota}
	u := open(t, path)
	u.Take(file, 1, quota(100_000, 100_000), quota(-1, 100_000))
	u.Take(file, 1, quota(-1, 100_000), quota(5_000, 10_000))
	want, _ := u.Get(file, 1)
	if err := u.Save(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const wanted = `{"dir":"kubepods/burstable/poda","knob":"cpu.quota","inode":1,"theirs":100000,"ours":5000,"before":-1,` +
		`"periods":{"theirs":100000,"ours":10000,"before":100000}}`
	if !strings.Contains(string(content), wanted) {
		t.Errorf("on disk is\n%s\nwant\n%s", content, wanted)
	}
	const once = `{"files":[{"dir":"kubepods/burstable/poda","knob":"cpu.quota","inode":1,"theirs":"100000 100000",` +
		`"ours":"5000 10000","before":"-1 100000"}]}`
	for _, body := range []string{"", once} {
		if body != "" {
			if err := undoKind.Write(path, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		got, found := open(t, path).Get(file, 1)
		if !found || got.Theirs != want.Theirs || got.Ours != want.Ours || got.Before == nil || *got.Before != *want.Before {
			t.Errorf("read again, it is %+v, want %+v", got, want)
		}
	}
}

// TestUndoFullDisk checks that nothing new is safe while the record cannot be written, that what was safe stays so, and
// that nothing is lost when it can be written again.
func TestUndoFullDisk(t *testing.T) {
	dir := t.TempDir()
	u := open(t, filepath.Join(dir, "undo"))
	u.Take(shares, 1, raw(102), raw(2048))
	if err := u.Save(); err != nil {
		t.Fatal(err)
	}
	u.path = filepath.Join(dir, "nowhere", "undo") // as good as full
	u.Take(shares, 1, raw(102), raw(2048))         // the kubelet writes what it wrote before
	if !u.Safe(shares, 1) {
		t.Error("a repair that the record covers is refused")
	}
	u.Take(shares, 1, raw(300), raw(2048))
	if err := u.Save(); err == nil || !u.Unsaved() || !u.Safe(shares, 1) {
		t.Errorf("a repair is refused, although the record on disk knows the value as ours and has a way back: %v", err)
	}
	u.Take(shares, 1, raw(2048), raw(4096))
	if u.Safe(shares, 1) {
		t.Error("a value of ours that is not on record would be taken for another writer's")
	}
	quota := model.File{Dir: shares.Dir, Knob: model.Quota}
	u.Take(quota, 1, raw(100_000), raw(model.Unlimited))
	if u.Safe(quota, 1) {
		t.Error("a new file is taken over without a record")
	}
	u.path = filepath.Join(dir, "undo")
	if err := u.Save(); err != nil || u.Unsaved() || !u.Safe(shares, 1) || !u.Safe(quota, 1) {
		t.Errorf("not safe though it is on disk: %v", err)
	}
	if r, ok := open(t, u.path).Get(shares, 1); !ok || r.Theirs != raw(300) || r.Ours != raw(4096) {
		t.Errorf("on record is %+v, want theirs 300, ours 4096", r)
	}
}

func FuzzUndo(f *testing.F) {
	f.Add(undoKind.Encode([]byte("{}")))
	f.Add([]byte("waterline-undo 1 crc32 0\n{"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "undo")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		u, err := OpenUndo(path)
		if u == nil || err != nil && !errors.Is(err, checkpoint.ErrDamaged) {
			t.Fatalf("%q: %v", content, err)
		}
		for _, o := range u.Owned(cgroup.V2) {
			if !filepath.IsLocal(o.Dir) {
				t.Errorf("%q names %q", content, o.Dir)
			}
		}
		if err != nil {
			return
		}
		body := []byte(`{"files":[{"dir":"../x","knob":"cpu.shares","inode":1,"theirs":2,"ours":3}]}`)
		if err := u.parse(body); err == nil {
			t.Errorf("a record that leaves the hierarchy is taken: %v", err)
		}
	})
}

// TestUndoOwned: what is owned is in order, and as of now whatever was asked before.
func TestUndoOwned(t *testing.T) {
	u := open(t, filepath.Join(t.TempDir(), "undo"))
	other := model.File{Dir: "kubepods/burstable", Knob: model.Shares}
	for i, step := range []struct {
		do   func()
		want []model.Owned
	}{
		{func() {}, nil},
		{
			func() { u.Take(shares, 1, raw(102), raw(2048)) }, []model.Owned{
				{File: shares, Ours: model.Number(2048), Theirs: model.Number(102)},
			},
		},
		{func() { u.Take(other, 2, raw(1), raw(2)) }, []model.Owned{
			{
				File: other, Ours: model.Number(2), Theirs: model.Number(1),
			}, {File: shares, Ours: model.Number(2048), Theirs: model.Number(102)},
		}},
		{func() { u.Take(other, 3, raw(4), raw(5)) }, []model.Owned{ // made anew
			{
				File: other, Ours: model.Number(5), Theirs: model.Number(4),
			}, {File: shares, Ours: model.Number(2048), Theirs: model.Number(102)},
		}},
		{func() { u.Take(shares, 1, raw(7), raw(2048)) }, []model.Owned{
			{
				File: other, Ours: model.Number(5), Theirs: model.Number(4),
			}, {File: shares, Ours: model.Number(2048), Theirs: model.Number(7)},
		}},
		{func() { u.Forget(other) }, []model.Owned{{File: shares, Ours: model.Number(2048), Theirs: model.Number(7)}}},
	} {
		step.do()
		for range 2 {
			if got := u.Owned(cgroup.V1); !slices.Equal(got, step.want) {
				t.Errorf("step %d: %v, want %v", i, got, step.want)
			}
		}
	}
}

// TestUndoOfANewerVersion checks that entries which this version does not know come back as they were, while its own
// change.
func TestUndoOfANewerVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "undo")
	const foreign = `{"dir":"kubepods/burstable/poda","knob":"cpu.future","inode":7,"theirs":{"List":"a"},"more":[1,2]}`
	body := `{"files":[` + foreign + `,` +
		`{"dir":"kubepods/burstable/poda","knob":"cpu.shares","inode":1,"theirs":102,"ours":2048}]}`
	if err := undoKind.Write(path, []byte(body)); err != nil {
		t.Fatal(err)
	}
	for ours := int64(3000); ours < 3003; ours++ {
		u := open(t, path)
		got := u.Foreign(func(dir string) bool { return dir != "kubepods/burstable/poda" })
		if len(got) != 1 || got[0] != "kubepods/burstable/poda cpu.future" {
			t.Fatalf("foreign are %q", got)
		}
		if r, found := u.Get(shares, 1); !found || r.Theirs != raw(102) {
			t.Fatalf("%+v, %v", r, found)
		}
		u.Take(shares, 1, r0(u), raw(ours))
		if err := u.Save(); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), foreign) {
		t.Errorf("the entry of a newer version was changed:\n%s", content)
	}

	u := open(t, path)
	if got := u.Foreign(func(string) bool { return true }); len(got) != 0 {
		t.Errorf("%q are foreign, and their group is gone", got)
	}
	if err := u.Save(); err != nil {
		t.Fatal(err)
	}
	if content, _ = os.ReadFile(path); strings.Contains(string(content), "cpu.future") {
		t.Errorf("the entry of a group that is gone was kept:\n%s", content)
	}
}

// r0 returns what the record says was written last.
func r0(u *Undo) cgroup.Raw {
	r, _ := u.Get(shares, 1)
	return r.Ours
}
