package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestHighAboveUse checks that no group is slowed down to less than it uses, for which whoever writes it would wait;
// that nobody is told of it, as the next round knows better; and that it is written as soon as less is used. Only whole
// pages count.
func TestHighAboveUse(t *testing.T) {
	const dir = "kubepods/besteffort/poda"
	root := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("memory.high", "max")
	write("memory.current", "8388608\n")
	h, err := New(cgroup.V2, func(model.Knob) string { return root }, open(t, filepath.Join(t.TempDir(), "undo")))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	apply := func(value int64, want string, writes uint64) {
		t.Helper()
		plan := model.Plan{
			Settings: []model.Setting{{File: model.File{Dir: dir, Knob: model.MemoryHigh}, Value: model.Number(value)}},
		}
		incidents, err := h.Apply(&plan)
		got, readErr := os.ReadFile(filepath.Join(root, dir, "memory.high"))
		if err != nil || readErr != nil || len(incidents) > 0 || string(got) != want ||
			h.Stats().Writes[model.MemoryHigh] != writes {
			t.Errorf("%d: holds %q, want %q; %+v, %v, %v", value, got, want, incidents, err, readErr)
		}
	}
	apply(4<<20, "max", 0)
	apply(4<<20, "max", 0)
	write("memory.current", "4190000\n")
	apply(4<<20+1, "4194304", 1)
	apply(4<<20+1, "4194304", 1)
	write("memory.current", "9999999\n")
	apply(5<<20, "5242880", 2) // it may have more than it had
	apply(4<<20, "5242880", 2)
}
