package predict

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/trace"
)

var start = time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC) // a Monday

// feed lets a predictor see generated usage from the start on, each value times a factor, and returns when it ended.
func feed(p *Predictor, c Config, use []float64, factor float64) time.Time {
	at := start
	for i, v := range use {
		at = start.Add(time.Duration(i) * trace.Step * time.Second)
		p.Observe(c, at, v*factor)
	}
	return at
}

func trained(t testing.TB, days int) (Predictor, Config, time.Time) {
	t.Helper()
	use := trace.Generate(trace.Online(days), 7)
	var p Predictor
	c := Config{Limit: 100}
	at := feed(&p, c, use, 1)
	return p, c, at
}

var bothHorizons = []model.Horizon{model.Hour, model.Day}

// TestAnything feeds any samples at any times: the prediction is a number, no less than the last sample, and above the
// limit only if that was.
func TestAnything(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	odd := []float64{
		0, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-9, 1e12,
	}
	steps := []time.Duration{
		0, time.Second, time.Minute, 5 * time.Minute, -time.Minute, -3 * time.Hour, 6 * time.Hour, 9 * 24 * time.Hour,
		-20 * 365 * 24 * time.Hour, 30 * 365 * 24 * time.Hour,
	}
	for range 200 {
		var p Predictor
		c := Config{Limit: 100}
		if random.IntN(10) == 0 {
			c.Limit = odd[random.IntN(len(odd))]
		}
		at, last := start, 0.0
		for range 2000 {
			v := 50 + 20*random.NormFloat64()
			switch random.IntN(200) {
			case 0:
				v = odd[random.IntN(len(odd))]
				at = at.Add(steps[random.IntN(len(steps))])
			default:
				at = at.Add(5 * time.Minute)
			}
			p.Observe(c, at, v)
			if v >= 0 && v <= highestSample {
				last = v
			}
			c.Prior = max(random.Float64()*200-100, 0)
			for _, h := range bothHorizons {
				r := p.Predict(c, at.Add(time.Duration(random.IntN(7200))*time.Second), h)
				for _, x := range []float64{r.Peak, r.Base, r.Margin, r.Missed, r.Checked} {
					if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
						t.Fatalf("horizon %d, sample %g at %s: %+v", h, v, at, r)
					}
				}
				if r.Peak < last || c.bounded() && r.Peak > max(c.Limit, last) {
					t.Fatalf("horizon %d: %g after %g, limit %g", h, r.Peak, last, c.Limit)
				}
				if r.Known && !c.bounded() {
					t.Fatalf("known with limit %g", c.Limit)
				}
			}
		}
	}
}

func TestCold(t *testing.T) {
	for _, h := range bothHorizons {
		var p Predictor
		if r := p.Predict(Config{Limit: 100}, start, h); r.Known || r.Peak != 100 {
			t.Errorf("horizon %d, nothing seen: %+v", h, r)
		}
		if r := p.Predict(Config{Limit: 100, Prior: 30}, start, h); r.Known || !r.Prior || r.Peak != 30 {
			t.Errorf("horizon %d, nothing seen but a prior: %+v", h, r)
		}
		if r := p.Predict(Config{Limit: 100, Prior: 300}, start, h); r.Peak != 100 {
			t.Errorf("horizon %d, a prior above the limit: %+v", h, r)
		}
		use := trace.Generate(trace.Shape{Days: 3, Base: 0.4}, 1)
		c := Config{Limit: 100}
		known := time.Duration(0)
		for i, v := range use {
			at := start.Add(time.Duration(i) * trace.Step * time.Second)
			p.Observe(c, at, v)
			if p.Predict(c, at, h).Known {
				known = at.Sub(start)
				break
			}
		}
		if want := time.Duration(h+1) * 24 * time.Hour; known != want {
			t.Errorf("horizon %d is known after %s, not %s", h, known, want)
		}
	}
}

// TestAge checks that older data never predicts less, and in the end is not trusted at all.
func TestAge(t *testing.T) {
	p, c, at := trained(t, 4)
	for _, h := range bothHorizons {
		before := 0.0
		for age := time.Duration(0); age < 3*time.Hour; age += 17 * time.Second {
			r := p.Predict(c, at.Add(age), h)
			if r.Peak < before || r.Age != age || r.Known != (age < maxAge) {
				t.Fatalf("horizon %d, age %s: %+v after a peak of %g", h, age, r, before)
			}
			before = r.Peak
		}
		if before != c.Limit {
			t.Errorf("horizon %d: %g after three hours without data", h, before)
		}
	}
	if early := p.Predict(c, at.Add(-time.Hour), model.Hour); early.Age != 0 || !early.Known {
		t.Errorf("a prediction for a time before the last sample: %+v", early)
	}
}

// TestGap checks that hours without samples, as when a machine is suspended, teach nothing: what was learned stays, no
// prediction jumps, and nothing is learned about the time that was not seen.
func TestGap(t *testing.T) {
	for _, gap := range []time.Duration{20 * time.Minute, 5 * time.Hour, 24 * time.Hour} {
		p, c, at := trained(t, 5)
		whole := p
		p.Observe(c, at.Add(gap), p.value)
		for _, h := range bothHorizons {
			if p.errors[h].misses > whole.errors[h].misses || p.errors[h].checked > whole.errors[h].checked+1 {
				t.Errorf("gap of %s, horizon %d: errors were learned from it", gap, h)
			}
		}
		if p.mean != whole.mean || p.spread > whole.spread {
			if d := math.Abs(p.mean - whole.mean); d > 1 || p.spread > whole.spread+1 {
				t.Errorf("gap of %s: mean %g → %g, variance %g → %g", gap, whole.mean, p.mean, whole.spread, p.spread)
			}
		}
		if a, b := p.Predict(c, at.Add(gap), model.Day).Peak, whole.Predict(c, at, model.Day).Peak; gap < 24*time.Hour &&
			math.Abs(a-b) > 1 {
			t.Errorf("gap of %s: the day's peak went from %g to %g", gap, b, a)
		}
	}
}

// TestClock checks that a clock that was set forward or back, and then right again, does no harm for long.
func TestClock(t *testing.T) {
	for _, step := range []time.Duration{-48 * time.Hour, -8 * time.Hour, -time.Minute, time.Hour, 8 * time.Hour} {
		p, c, at := trained(t, 6)
		p.Observe(c, at.Add(step), 30)
		p.Observe(c, at.Add(5*time.Minute), 30)
		if r := p.Predict(c, at.Add(5*time.Minute), model.Hour); !r.Known || r.Age != 0 {
			t.Errorf("clock off by %s for a moment: %+v", step, r)
		}
	}
	p, c, at := trained(t, 6)
	p.Observe(c, at.Add(20*365*24*time.Hour), 30)
	p.Observe(c, at.Add(5*time.Minute), 30)
	if r := p.Predict(c, at.Add(5*time.Minute), model.Hour); r.Known {
		t.Errorf("a week of quarter-hours cannot be known after a clock was off by years: %+v", r)
	}
}

func TestSameInputSameOutput(t *testing.T) {
	p, c, at := trained(t, 5)
	again, _, _ := trained(t, 5)
	if p != again {
		t.Error("the same samples left two states")
	}
	before := p
	if p.Predict(c, at, model.Hour) != p.Predict(c, at, model.Hour) || p != before {
		t.Error("predicting changed something")
	}
	p.Observe(c, at.Add(time.Hour), 90)
	if before == p || before != again {
		t.Error("a copy is not independent")
	}
}

// TestTarget checks that who accepts more violations gets no higher peak.
func TestTarget(t *testing.T) {
	p, c, at := trained(t, 9)
	for _, h := range bothHorizons {
		before := math.Inf(1)
		for target := 0.001; target < 1; target *= 1.07 {
			c.Target[h] = target
			r := p.Predict(c, at, h)
			if r.Peak > before {
				t.Fatalf("horizon %d: target %g predicts %g, a lower one %g", h, target, r.Peak, before)
			}
			before = r.Peak
		}
	}
}

// TestUnits checks that the unit does not matter: peaks are kept in floating point, so by powers of two it is exact.
func TestUnits(t *testing.T) {
	use := trace.Generate(trace.Online(6), 3)
	for _, factor := range []float64{1024, 1.0 / 64, 1000, 1 << 30 / 7.0} {
		exact := factor == 1024 || factor == 1.0/64
		var one, other Predictor
		c, d := Config{Limit: 100}, Config{Limit: 100 * factor}
		at := feed(&one, c, use, 1)
		feed(&other, d, use, factor)
		for _, h := range bothHorizons {
			a, b := one.Predict(c, at, h).Peak*factor, other.Predict(d, at, h).Peak
			if exact && a != b || math.Abs(a-b) > 0.02*a {
				t.Errorf("factor %g, horizon %d: %g, not %g", factor, h, b, a)
			}
		}
	}
}

// TestCalibrated checks on generated usage that predictions are exceeded about as seldom as the target says.
func TestCalibrated(t *testing.T) {
	exceeded, made := 0, 0
	for seed := range uint64(6) {
		use := trace.Generate(trace.Online(14), seed)
		var p Predictor
		c := Config{Limit: 100}
		for i, v := range use[:len(use)-12] {
			at := start.Add(time.Duration(i) * trace.Step * time.Second)
			p.Observe(c, at, v)
			if i < 2*288 || i%3 != 0 {
				continue
			}
			made++
			if p.Predict(c, at, model.Hour).Peak < slices.Max(use[i+1:i+13]) {
				exceeded++
			}
		}
		if r := p.Predict(c, start, model.Hour); r.Checked < 100 || r.Missed > 0.08 {
			t.Errorf("seed %d: the predictor counts %+v", seed, r)
		}
	}
	if share := float64(exceeded) / float64(made); share > 0.04 {
		t.Errorf("%.3f of %d predictions were exceeded", share, made)
	}
}

// textLength is the length of the text of a predictor in bytes, whatever it has seen.
const textLength = (rawLength + 2) / 3 * 4

func TestText(t *testing.T) {
	p, c, at := trained(t, 9)
	text, err := json.Marshal(&p)
	if err != nil {
		t.Fatal(err)
	}
	var back Predictor
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back != p || back.Predict(c, at, model.Day) != p.Predict(c, at, model.Day) {
		t.Error("the state does not come back as it was")
	}
	if len(text) != textLength+2 {
		t.Errorf("%d bytes, not %d", len(text), textLength+2)
	}
	if groups := 64 << 10 / len(text); groups < 20 {
		t.Errorf("only %d predictors of %d bytes fit into a node's 64 KB", groups, len(text))
	}
	var empty Predictor
	if text, err := empty.MarshalText(); err != nil || len(text) != textLength || back.UnmarshalText(text) != nil ||
		back != empty {
		t.Errorf("the zero value does not come back: %v", err)
	}
}

// TestVersion1 reads what the version before wrote: what was measured is kept, and errors begin anew.
func TestVersion1(t *testing.T) {
	text, err := os.ReadFile("testdata/version1.base64")
	if err != nil {
		t.Fatal(err)
	}
	var old Predictor
	if err := old.UnmarshalText(bytes.TrimSpace(text)); err != nil {
		t.Fatal(err)
	}
	p, c, at := trained(t, 9)
	for _, pair := range [][2]*float64{{&old.value, &p.value}, {&old.mean, &p.mean}, {&old.spread, &p.spread}} {
		if math.Abs(*pair[0]-*pair[1]) < 1e-9 { // arm64 fuses multiplications and additions
			*pair[0] = *pair[1]
		}
	}
	old.around, p.errors = p.around, [model.Horizons]record{}
	if old != p {
		t.Error("the measured past is not the same")
	}
	for _, h := range bothHorizons {
		if r := old.Predict(c, at, h); !r.Known || r.Checked != 0 {
			t.Errorf("horizon %d: %+v", h, r)
		}
	}
	if err := new(Predictor).UnmarshalText(bytes.TrimSpace(text)[4:]); err == nil {
		t.Error("half a text was read")
	}
}

func TestBadText(t *testing.T) {
	p, _, _ := trained(t, 3)
	text, _ := p.MarshalText()
	raw := string(text)
	for name, bad := range map[string]string{
		"empty": "", "not base64": "{}", "short": raw[:len(raw)-8], "long": raw + "AAAA", "version": "AwAA" + raw[4:],
		"not finite": raw[:16] + strings.Repeat("////", 8) + raw[48:],
	} {
		q := p
		if err := q.UnmarshalText([]byte(bad)); err == nil || q != p {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzText(f *testing.F) {
	p, _, _ := trained(f, 3)
	text, _ := p.MarshalText()
	f.Add(text)
	f.Add([]byte("AgE="))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p Predictor
		if p.UnmarshalText(text) != nil {
			return
		}
		c := Config{Limit: 100}
		for i := range 200 {
			p.Observe(c, time.Unix(0, p.last).Add(time.Duration(i)*time.Minute), float64(i))
		}
		for _, h := range bothHorizons {
			if r := p.Predict(c, time.Unix(0, p.last), h); math.IsNaN(r.Peak) || math.IsInf(r.Peak, 0) || r.Peak < 199 {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	p, c, at := trained(t, 3)
	if n := testing.AllocsPerRun(1000, func() {
		at = at.Add(time.Minute)
		p.Observe(c, at, 40)
		p.Predict(c, at, model.Hour)
		p.Predict(c, at, model.Day)
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// BenchmarkMinute is what a predictor costs once a minute: a sample and both predictions.
func BenchmarkMinute(b *testing.B) {
	p, c, at := trained(b, 8)
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(time.Minute)
		p.Observe(c, at, 40)
		p.Predict(c, at, model.Hour)
		p.Predict(c, at, model.Day)
	}
}

// TestEarlyAfterPause: after a night without samples, the first minute gets the margin of a first minute.
func TestEarlyAfterPause(t *testing.T) {
	c := Config{Limit: 64, Early: true}
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	var p Predictor
	margin := func(minutes int) float64 {
		for range minutes {
			p.Observe(c, at, 2)
			at = at.Add(time.Minute)
		}
		return p.Predict(c, at, model.Hour).Margin
	}
	if m := margin(1); m != earlyMargin {
		t.Errorf("the margin of the first minute is %v, want %v", m, earlyMargin)
	}
	if m := margin(120); math.Abs(m-laterMargin) > 1e-9 {
		t.Errorf("after two hours it is %v, want %v", m, laterMargin)
	}
	at = at.Add(12 * time.Hour)
	if m := margin(1); m != earlyMargin {
		t.Errorf("in the first minute after a pause it is %v, want %v", m, earlyMargin)
	}
}
