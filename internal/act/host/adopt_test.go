package host

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestAdopt: whatever plan follows which, the files of the last one are known, those of it that the one before named
// are the same as then, and no other is known or open.
func TestAdopt(t *testing.T) {
	h, err := New(cgroup.V1, func(model.Knob) string { return t.TempDir() }, &Undo{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for plan := range 1000 {
		before := maps.Clone(h.index)
		var settings []model.Setting
		for _, dir := range []string{"a", "a/b", "c", "d", "e"} {
			for _, knob := range []model.Knob{model.Shares, model.Quota} {
				if name := (model.File{Dir: dir, Knob: knob}); r.IntN(2) == 0 {
					settings = append(settings, model.Setting{File: name, Value: model.Number(int64(plan))})
				}
			}
		}
		slices.SortFunc(settings, func(a, b model.Setting) int { return a.File.Compare(b.File) })
		h.adopt(settings)
		if len(h.files) != len(settings) || len(h.index) != len(settings) {
			t.Fatalf("plan %d names %d files, %d are known, %d by name", plan, len(settings), len(h.files), len(h.index))
		}
		for i, s := range settings {
			f := h.files[i]
			if f.setting.File != s.File || f.setting.Value != s.Value || h.index[s.File] != f ||
				before[s.File] != nil && before[s.File] != f {
				t.Fatalf("plan %d, file %v: %+v", plan, s.File, f)
			}
			if f.f == nil {
				if f.f, err = h.roots[model.Shares].Create("open"); err != nil { // as if it had been read
					t.Fatal(err)
				}
			}
		}
		for name, f := range before {
			if h.index[name] == nil && f.f != nil {
				t.Fatalf("plan %d: %v is still open", plan, name)
			}
		}
	}
}
