package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

func TestAllowances(t *testing.T) {
	dir := filepath.Join(t.TempDir(), PodsDir)
	uid, other := "0a1b2c3d-0000-4000-8000-000000000001", "0a1b2c3d-0000-4000-8000-000000000002"
	// What an agent before this one left.
	if err := os.MkdirAll(filepath.Join(dir, other), 0o755); err != nil {
		t.Fatal(err)
	}
	w := Allowances{dir: dir}
	now := time.Unix(1e9, 0).UTC()
	pods := []*model.Pod{{UID: uid, Pool: "yarn"}, {UID: other}}
	s := &model.Suppression{
		Reason: model.Reason{Code: model.BatchAllowed}, Parts: []model.BatchPart{
			{UID: uid, Milli: 1500, Memory: 1 << 30}, {UID: other, Milli: 7},
		},
	}
	var b *model.Interference
	write := func() {
		t.Helper()
		if err := w.write(pods, s, b, now); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (a Allowance) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, uid, AllowanceFile))
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	write()
	if a := read(); a.CPUMilli != 1500 || a.MemoryBytes != 1<<30 || a.Time != now || a.Seconds == 0 ||
		a.Reason != "BatchAllowed" {
		t.Errorf("%+v", a)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("there is %v, where only the pool's pod should have a file", left)
	}
	for after, renewed := range map[time.Duration]bool{5 * time.Second: false, 11 * time.Second: true, -time.Hour: true} {
		before := read().Time
		now = before.Add(after)
		write()
		if read().Time.Equal(before) == renewed {
			t.Errorf("after %s it was renewed: %v", after, !renewed)
		}
	}
	b = &model.Interference{
		Throttles: []model.Throttle{{UID: uid, Milli: 700, Code: model.ThrottleKept}, {UID: other, Milli: 3}},
	}
	if write(); read().CPUMilli != 700 || !strings.HasPrefix(read().Reason, "ThrottleKept") {
		t.Errorf("throttled: %+v", read())
	}
	s.Parts[0].Milli = 10
	write()
	if read().CPUMilli != 10 {
		t.Error("a change was not written")
	}
	// Where nothing is decided any more, nothing stands there that is not true.
	s = nil
	write()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	// In the steady state it costs nothing.
	if n := testing.AllocsPerRun(10, write); n > 2 {
		t.Errorf("%v allocations with nothing to do", n)
	}
}
