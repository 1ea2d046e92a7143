package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestIdentity checks that what others write is answered, and that all is given back as it was, also in a container
// that was made while its pod had ours, with the agent or without. No kernel that tests run on has identities, so plain
// files stand for its own. The test does what the kernel does, which gives a new group what the one above has; and as a
// plain file keeps what is longer than what is written, a value and the one that follows are as long.
func TestIdentity(t *testing.T) {
	root, record := t.TempDir(), filepath.Join(t.TempDir(), "undo")
	const batch, online, others = "kubepods/besteffort/poda", "kubepods/burstable/podb", "kubepods/besteffort/podc"
	name := func(dir string) string { return filepath.Join(root, dir, cgroup.FileName(cgroup.V1, model.Identity)) }
	write := func(dir, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name(dir), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var settings []model.Setting // ordered by directory
	want := func(dir string, value int64) {
		settings = append(settings, model.Setting{
			File: model.File{Dir: dir, Knob: model.Identity}, Value: model.Number(value),
		})
	}
	var h *Host
	begin := func() {
		t.Helper()
		var err error
		if h, err = New(cgroup.V1, func(model.Knob) string { return root }, open(t, record)); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(overwritten int) {
		t.Helper()
		incidents, err := h.Apply(&model.Plan{Settings: settings})
		if err != nil || len(incidents) != overwritten {
			t.Fatalf("%+v, %v", incidents, err)
		}
		for _, s := range settings {
			got, err := os.ReadFile(name(s.Dir))
			if err != nil || string(got) != s.Value.String() {
				t.Errorf("%s holds %q, want %s (%v)", s.Dir, got, s.Value, err)
			}
		}
	}

	write(batch, "-2")
	write(batch+"/old", "-2")
	write(others, "-1")
	write(others+"/x", "-1")
	write(online, "1")
	want(batch, -1)
	want(batch+"/new", -1)
	want(batch+"/old", -1)
	want(batch+"/restarted", -1)
	want(others, -1)
	want(others+"/x", -1)
	want(online, 2)
	all := settings
	settings = []model.Setting{all[0], all[2], all[4], all[5], all[6]}
	begin()
	apply(0)
	write(batch+"/new", "-1") // as the kernel makes it
	settings = append([]model.Setting{all[0], all[1]}, settings[1:]...)
	apply(0)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	write(batch+"/restarted", "-1")
	begin()
	settings = all
	apply(0)

	write(online, "0")
	if !h.Check(all[6].File) {
		t.Error("another writer goes unseen")
	}
	apply(1)

	given := map[string]int64{
		batch: -2, batch + "/new": -2, batch + "/old": -2, batch + "/restarted": -2, others: -1, others + "/x": -1, online: 0,
	}
	owned := h.Owned()
	if len(owned) != len(given) {
		t.Errorf("%d files are on record, want %d", len(owned), len(given))
	}
	settings = nil
	for _, o := range owned {
		if o.Theirs.Number != given[o.Dir] {
			t.Errorf("%s would get back %s, want %d", o.Dir, o.Theirs, given[o.Dir])
		}
		settings = append(settings, model.Setting{File: o.File, Value: o.Theirs, Release: true})
	}
	apply(0)
	if left := h.Owned(); len(left) > 0 {
		t.Errorf("%+v stay on record", left)
	}
}
