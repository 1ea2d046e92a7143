package pool

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// TestWindowsAgainstSeconds compares the figures with those of a list that has the rest of each second.
func TestWindowsAgainstSeconds(t *testing.T) {
	const window = 10 * time.Minute
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 11))
		var h History
		var rests, spares []model.Amount // of each second
		rest := model.Amount{}
		for second := range 3000 {
			if r.IntN(40) == 0 {
				rest = model.Amount{CPU: int64(r.IntN(32000)) - 4000, Memory: int64(r.IntN(64)) << 30}
			}
			spare := rest.Plus(model.Amount{CPU: 2000})
			h = h.See(noon.Add(time.Duration(second)*time.Second), rest, spare, window)
			w := h.Windows(window)
			if w.Now != rest || w.Watched != (second >= 600) {
				t.Fatalf("seed %d, second %d: %+v, and the rest is %+v", seed, second, w, rest)
			}
			for _, c := range []struct {
				name string
				got  model.Amount
				over int
			}{{"a tenth", w.Tenth, 60}, {"a half", w.Half, 300}, {"all", w.Whole, 600}} {
				if want := average(rests, c.over, rest); !close(c.got, want) {
					t.Fatalf("seed %d, second %d: %s of the window: %+v, want %+v", seed, second, c.name, c.got, want)
				}
			}
			// A level counts for the second that follows it, so the last one counts from now on.
			if low := lowest(append(last(rests, 600), rest)); w.Lowest != low {
				t.Fatalf("seed %d, second %d: the lowest is %+v, want %+v", seed, second, w.Lowest, low)
			}
			high := spare
			for _, s := range last(spares, 3) {
				high = model.Amount{CPU: max(high.CPU, s.CPU), Memory: max(high.Memory, s.Memory)}
			}
			if w.Spare != high {
				t.Fatalf("seed %d, second %d: spare is %+v, want %+v", seed, second, w.Spare, high)
			}
			rests, spares = append(rests, rest), append(spares, spare)
		}
	}
}

// last returns the last n of some values, or all if there are fewer.
func last(all []model.Amount, n int) []model.Amount {
	return append([]model.Amount{}, all[max(len(all)-n, 0):]...)
}

func average(all []model.Amount, over int, otherwise model.Amount) model.Amount {
	all = last(all, over)
	if len(all) == 0 {
		return otherwise
	}
	var sum model.Amount
	for _, v := range all {
		sum = sum.Plus(v)
	}
	return model.Amount{CPU: sum.CPU / int64(len(all)), Memory: sum.Memory / int64(len(all))}
}

func lowest(all []model.Amount) model.Amount {
	low := all[0]
	for _, v := range all {
		low = model.Amount{CPU: min(low.CPU, v.CPU), Memory: min(low.Memory, v.Memory)}
	}
	return low
}

// close reports whether two amounts differ by rounding only.
func close(a, b model.Amount) bool {
	return max(a.CPU-b.CPU, b.CPU-a.CPU) <= 1 && max(a.Memory-b.Memory, b.Memory-a.Memory) <= 1<<10
}

// TestHistoryStartsAnew checks that a gap, a clock that was set back, and more changes than are remembered make a node
// count as not watched.
func TestHistoryStartsAnew(t *testing.T) {
	const window = 2 * time.Minute
	rest := model.Amount{CPU: 8000, Memory: 32 << 30}
	watched := func() (h History) {
		for second := range 181 {
			h = h.See(noon.Add(time.Duration(second)*time.Second), rest, rest, window)
		}
		return h
	}
	if h := watched(); !h.Windows(window).Watched {
		t.Fatal("three minutes are not enough for two")
	}
	for name, at := range map[string]time.Time{"a gap": noon.Add(10 * time.Minute), "set back": noon} {
		if w := watched().See(at, rest, rest, window).Windows(window); w.Watched || w.Whole != rest {
			t.Errorf("%s: %+v", name, w)
		}
	}
	h := watched()
	for second := range 600 {
		rest.CPU++
		h = h.See(noon.Add(time.Duration(181+second)*time.Second), rest, rest, 10*time.Minute)
	}
	if len(h.past) > maxLevels || h.Windows(10*time.Minute).Watched {
		t.Errorf("%d levels, watched: %v", len(h.past), h.Windows(10*time.Minute).Watched)
	}
	if before := (History{}).Windows(window); before != (Windows{}) {
		t.Errorf("nothing was seen: %+v", before)
	}
}

// TestMarginOfMemory checks that the margin is the largest fall within the time in which workers release memory, that
// slow falls do not add up, and that half of it counts after half a day.
func TestMarginOfMemory(t *testing.T) {
	const window = 10 * time.Minute
	at, memory := noon, int64(100)<<30
	var h History
	pass := func(d time.Duration) Windows {
		for end := at.Add(d); at.Before(end); at = at.Add(10 * time.Second) {
			h = h.See(at, model.Amount{Memory: memory}, model.Amount{}, window)
		}
		return h.Windows(window)
	}
	if w := pass(50 * time.Minute); w.Margin != -1 {
		t.Errorf("after 50 minutes: %d", w.Margin)
	}
	if w := pass(20 * time.Minute); w.Margin != 0 {
		t.Errorf("nothing fell: %d", w.Margin)
	}
	memory -= 2 << 30
	pass(30 * time.Second)
	memory -= 3 << 30 // within 90 s: one fall
	if w := pass(10 * time.Second); w.Margin != 5<<30 {
		t.Errorf("two falls within 90 s: %d", w.Margin>>20)
	}
	pass(2 * time.Minute)
	for range 20 { // slowly
		memory -= 1 << 30
		pass(2 * time.Minute)
	}
	if w := pass(10 * time.Second); w.Margin > 5<<30 || w.Margin < 4<<30 {
		t.Errorf("after slow falls: %d MiB", w.Margin>>20)
	}
	memory += 20 << 30
	if w := pass(12 * time.Hour); w.Margin < 2<<30 || w.Margin > 3<<30 {
		t.Errorf("half a day later: %d MiB", w.Margin>>20)
	}
}
