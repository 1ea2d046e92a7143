package interference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/waterline-io/waterline/internal/model"
)

// TestGaps: after a gap nothing is found until two minutes were measured in a row.
func TestGaps(t *testing.T) {
	for name, gap := range map[string]func(p *tester){
		"nobody looked for ten seconds":   func(p *tester) { p.in.Clock += 10 * time.Second },
		"the victim was not measured":     func(p *tester) { p.stale(len(p.use), true, false) },
		"its own load was not measured":   func(p *tester) { p.stale(len(p.use), false, true) },
		"the suspect was not measured":    func(p *tester) { p.stale(p.w.guilty, true, true) },
		"the machine was booted":          func(p *tester) { p.in.Clock = time.Minute },
		"what is measured is seconds old": func(p *tester) { p.stale(-1, true, true) },
	} {
		w := newWorld(linear, 3, 4)
		p := newTester(w, func(int) bool { return false })
		for p.second().Finding.Suspect == "" {
			if p.in.Clock > 2*time.Hour {
				t.Fatal("nobody is named")
			}
		}
		if p.last.Finding.Suspect != p.in.Pods[w.guilty].UID {
			t.Fatalf("%+v", p.last.Finding)
		}
		gap(p)
		for second := range 110 {
			if f := p.second().Finding; second > 5 && f.Suspect != "" {
				t.Fatalf("%s: %d s later %+v", name, second, f)
			}
		}
		named := false
		for range 400 {
			named = named || p.second().Finding.Suspect == p.in.Pods[w.guilty].UID
		}
		if !named {
			t.Errorf("%s: nobody is ever named again", name)
		}
	}
}

// TestLate: what comes ten seconds late is not of now, though it is news.
func TestLate(t *testing.T) {
	p := newTester(newWorld(linear, 3, 4), func(int) bool { return false })
	var late State
	found := false
	for range 600 {
		found = found || p.second().Finding.Victim != ""
		pods := slices.Clone(p.in.Pods)
		for i := range p.in.Pods {
			pods[i].UsedAt -= 10 * time.Second
			pods[i].Lacked.At -= 10 * time.Second
		}
		in := p.in
		in.Pods = pods
		var b model.Interference
		if b, late = Decide(in, late); b.Finding.Victim != "" {
			t.Fatalf("%+v", b.Finding)
		}
	}
	if !found {
		t.Error("nobody waits, so nothing was shown")
	}
}

// stale lets ten seconds pass in which only old measurements of a pod are there; below 0: of all.
func (p *tester) stale(pod int, wait, used bool) {
	for range 10 {
		p.in.Clock += time.Second
		for i := range p.in.Pods {
			c := &p.in.Pods[i]
			old := i == pod || pod < 0
			if !old || !wait {
				c.lack(p.in.Clock, 100)
			}
			if !old || !used {
				c.UsedAt = p.in.Clock
			}
		}
		p.last, p.state = Decide(p.in, p.state)
	}
}

// TestNew: what a pod used before it was there is known, though what it uses is known only a second later, in whichever
// second of a span it came.
func TestNew(t *testing.T) {
	for came := 300; came < 305; came++ {
		for _, isNew := range []bool{true, false} {
			if named := newcomer(came, isNew); isNew != (named > 0 && named < came+40) {
				t.Errorf("in second %d, new %v: named after %d s", came, isNew, named-came)
			}
		}
	}
}

// newcomer lets a batch pod come for which an online pod waits, and returns in which second it is named; 0: in none.
func newcomer(came int, isNew bool) int {
	p := &tester{in: Input{Acts: true, Clock: time.Hour, Pods: []Pod{{UID: "victim", Online: true}}}}
	r := rand.New(rand.NewPCG(1, 1))
	for second := range 500 {
		p.in.Clock += time.Second
		if second == came {
			p.in.Pods = []Pod{{UID: "job", Batch: true, New: isNew}, p.in.Pods[0]}
		}
		for i := range p.in.Pods {
			c := &p.in.Pods[i]
			if c.UID == "victim" || second > came {
				c.UsedAt = p.in.Clock
			}
			wait := 20 + r.Int64N(30)
			c.Used = 2000 + r.Int64N(200)
			if len(p.in.Pods) == 2 {
				wait += 300
			}
			c.lack(p.in.Clock, wait)
		}
		p.last, p.state = Decide(p.in, p.state)
		if len(p.in.Pods) == 2 {
			p.in.Pods[0].New = false
		}
		if p.last.Finding.Suspect == "job" {
			return second
		}
	}
	return 0
}

// TestMemory: the state of a node with 110 pods fits into 80 KiB, besides the UIDs, which others have too.
func TestMemory(t *testing.T) {
	var s State
	in := crowd(110)
	for range 700 {
		next(in)
		_, s = Decide(*in, s)
	}
	size := unsafe.Sizeof(s) + uintptr(cap(s.Tracks))*unsafe.Sizeof(Track{}) +
		uintptr(cap(s.Rows))*unsafe.Sizeof(Row{}) + uintptr(cap(s.Throttled))*unsafe.Sizeof(Throttled{})
	t.Logf("%d bytes, of which %d a pod in rows and %d in tracks", size, unsafe.Sizeof(Row{}), unsafe.Sizeof(Track{}))
	if size > 80<<10 {
		t.Errorf("%d bytes", size)
	}
}

// crowd is a node on which many bursty neighbours make a victim wait.
func crowd(pods int) *Input {
	in := &Input{Acts: true, Clock: time.Hour}
	for i := range pods {
		in.Pods = append(in.Pods, Pod{
			UID: fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i), Online: i%3 == 0, Batch: i%3 != 0, Shares: 1024,
		})
	}
	return in
}

// next lets a second pass in which all is measured.
func next(in *Input) {
	in.Clock += time.Second
	second := int64(in.Clock / time.Second)
	for i := range in.Pods {
		c := &in.Pods[i]
		c.UsedAt = in.Clock
		swing := (second / (20 + int64(i)*7%90)) % 2
		c.Used = 300 + 2500*swing + (second*7919+int64(i)*104729)%211
		c.lack(in.Clock, 60+400*((second/27)%2)+(second*31+int64(i)*17)%53)
	}
}

// TestArgumentsStay: Decide changes neither its input nor the state that it was given, and a state that was written and
// read again decides alike.
func TestArgumentsStay(t *testing.T) {
	p := newTester(newWorld(linear, 3, 4), func(int) bool { return true })
	named := false
	for second := range 900 {
		if second%60 == 7 {
			p.in.Pods[0].UID = fmt.Sprintf("n%03d%d", 0, second) // another pod, in the place of the one before
		}
		state := encode(t, &p.state)
		old := p.state
		p.second()
		input := encode(t, &p.in)
		var read State
		if err := json.Unmarshal(state, &read); err != nil {
			t.Fatal(err)
		}
		again, next := Decide(p.in, read)
		if got := encode(t, &old); !bytes.Equal(got, state) {
			t.Fatalf("second %d: the state was changed from\n%s to\n%s", second, state, got)
		}
		if got := encode(t, &p.in); !bytes.Equal(got, input) {
			t.Fatalf("second %d: the input was changed to %s", second, got)
		}
		if !bytes.Equal(encode(t, &again), encode(t, &p.last)) || !bytes.Equal(encode(t, &next), encode(t, &p.state)) {
			t.Fatalf("second %d: with the state that was read\n%+v, else\n%+v", second, again, p.last)
		}
		named = named || len(p.last.Throttles) > 0
	}
	if !named {
		t.Error("no pod was throttled, so little was shown")
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// BenchmarkSecond110 is the mean second of a node with 110 pods, of which 37 wait all the time.
func BenchmarkSecond110(b *testing.B) {
	var s State
	in := crowd(110)
	for range 700 {
		next(in)
		_, s = Decide(*in, s)
	}
	b.ReportAllocs()
	for b.Loop() {
		next(in)
		_, s = Decide(*in, s)
	}
}

// BenchmarkInput110 is what of that is the benchmark's own.
func BenchmarkInput110(b *testing.B) {
	in := crowd(110)
	for b.Loop() {
		next(in)
	}
}

// TestRing compares samples in rings with a dumb version, which keeps all spans in a list.
func TestRing(t *testing.T) {
	s := State{Rows: make([]Row, 1), Tracks: make([]Track, 1)}
	r := rand.New(rand.NewPCG(1, 13))
	var all []int64
	for s.Clock = 0; len(all) < 3*maxSamples; s.Clock += spanLength {
		use := r.Int64N(5000)
		s.Tracks[0].Sum, s.Tracks[0].Count = use, 1
		if s.turn() && s.Length > 0 {
			all = append(all, use)
		}
		n := min(len(all), maxSamples)
		if got := int64(s.Tracks[0].Used); got != int64(n) || s.Length != got {
			t.Fatalf("%d spans: %d samples count, of %d", len(all), got, s.Length)
		}
		if n < 4 {
			continue
		}
		n = 4 + r.IntN(n-3)
		newest := make([]float64, n)
		s.Rows[0].Used.newest(s.Span, newest)
		sum := int64(0)
		for i, want := range all[len(all)-n:] {
			sum += want
			if newest[i] != float64(want) {
				t.Fatalf("the newest %d of %v are %v", n, all, newest)
			}
		}
		sorted := slices.Sorted(slices.Values(all[len(all)-n:]))
		low := int64(0)
		for _, v := range sorted[:n/4] {
			low += v
		}
		if got := s.Rows[0].Used.mean(s.Span, int64(n)); got != sum/int64(n) {
			t.Errorf("the mean of %d of %v is %d", n, all, got)
		}
		if got := s.Rows[0].Used.lowest(s.Span, int64(n)); got != low/int64(n/4) {
			t.Errorf("the lowest quarter of %d of %v is %d", n, all, got)
		}
	}
}

// FuzzDecide: nothing that is measured breaks anything.
func FuzzDecide(f *testing.F) {
	f.Add([]byte("some seconds"), uint8(4))
	f.Add([]byte{0, 255, 0, 255, 17, 3, 200, 9, 9, 9}, uint8(9))
	f.Fuzz(func(t *testing.T, text []byte, pods uint8) {
		var s State
		in := Input{Acts: true, Clock: time.Hour}
		for i := range pods % 12 {
			in.Pods = append(in.Pods, Pod{UID: fmt.Sprint(i), Online: i%2 == 0, Batch: i%3 == 1})
		}
		at := 0
		draw := func() int64 {
			if len(text) == 0 {
				return 0
			}
			at++
			return int64(text[at%len(text)]) * int64(at%7+1)
		}
		for range 400 {
			switch d := draw(); {
			case d == 255 && len(in.Pods) > 0:
				in.Pods = in.Pods[1:]
			case d == 510:
				in.Clock += time.Duration(draw()-100) * time.Second
			default:
				in.Clock += time.Second
			}
			for i := range in.Pods {
				c := &in.Pods[i]
				c.Used, c.Shares, c.New = draw()*40-100, int32(draw()), draw() == 6
				c.UsedAt = in.Clock - time.Duration(draw()/600)*time.Second
				c.lack(in.Clock, draw())
			}
			var b model.Interference
			b, s = Decide(in, s)
			if x := &b.Finding; x.Score < 0 || x.Score > 1000 || x.Code == "" && x.Victim != "" ||
				x.Suspect != "" && x.Suspect == x.Victim {
				t.Fatalf("%+v", b.Finding)
			}
			for _, h := range b.Throttles {
				if h.Milli < model.MinBatchPart || h.Times >= 1000 || h.Times < deepestThrottle {
					t.Fatalf("%+v", h)
				}
			}
			b.Finding.Reason()
		}
	})
}
