package predict

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/golden"
)

// stretch is a time of which a case says something.
type stretch struct {
	from, to time.Time
	value    float64 // used; below 0: nothing was measured
}

// TestCases runs the golden cases: commands, a line of four dashes, and what was predicted when the case asks.
//
//	limit VALUE                         prior VALUE                       the limit and the prior, from the beginning
//	early YOUNG                         use alone predicts the first day, beside young pods' requests
//	daily NIGHT NOON                    what is used at midnight and at noon, and in between along a cosine
//	used DAY HH:MM DURATION VALUE       something else is used then
//	silent DAY HH:MM DURATION           nothing is measured then
//	ask DAY HH:MM                       the predictions then; days are numbered from 1
func TestCases(t *testing.T) { golden.Each(t, runCase, "testdata/*.case") }

func runCase(t *testing.T, content string) string {
	commands, _, _ := strings.Cut(content, "----\n")
	var c Config
	var night, noon float64
	var others []stretch
	var asks []time.Time
	for line := range strings.Lines(commands) {
		line = strings.TrimSpace(line)
		var day int
		var clock, long string
		var s stretch
		when := func() time.Time {
			at, err := time.Parse("15:04", clock)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return start.Add(time.Duration(day-1)*24*time.Hour + time.Duration(at.Hour())*time.Hour +
				time.Duration(at.Minute())*time.Minute)
		}
		var n, want int
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
			continue
		case "limit":
			want = 1
			n, _ = fmt.Sscan(rest, &c.Limit)
		case "prior":
			want = 1
			n, _ = fmt.Sscan(rest, &c.Prior)
		case "early":
			want = 1
			c.Early = true
			n, _ = fmt.Sscan(rest, &c.Young)
		case "daily":
			want = 2
			n, _ = fmt.Sscan(rest, &night, &noon)
		case "ask":
			want = 2
			n, _ = fmt.Sscan(rest, &day, &clock)
			asks = append(asks, when())
		case "used", "silent":
			want = 3
			s.value = -1
			if word == "used" {
				want = 4
			}
			n, _ = fmt.Sscan(rest, &day, &clock, &long, &s.value)
			length, err := time.ParseDuration(long)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			s.from = when()
			s.to = s.from.Add(length)
			others = append(others, s)
		}
		if want == 0 || n < want {
			t.Fatalf("cannot understand %q", line)
		}
	}
	return commands + "----\n" + play(c, night, noon, others, asks)
}

// play lets a predictor see a value a minute and writes down what it predicts when it is asked.
func play(c Config, night, noon float64, others []stretch, asks []time.Time) string {
	var b strings.Builder
	var p Predictor
	at := start
	for _, ask := range asks {
		for ; !at.After(ask); at = at.Add(time.Minute) {
			day := float64(at.Hour()*60+at.Minute()) / (24 * 60)
			value := night + (noon-night)*(1-math.Cos(2*math.Pi*day))/2
			for _, o := range others {
				if !at.Before(o.from) && at.Before(o.to) {
					value = o.value
				}
			}
			p.Observe(c, at, value)
		}
		fmt.Fprintf(&b, "day %d %s, used %.0f\n", int(ask.Sub(start).Hours())/24+1, ask.Format("15:04"), p.value)
		for h, name := range []string{"hour", "day"} {
			r := p.Predict(c, ask, model.Horizon(h))
			fmt.Fprintf(&b, "  %-5s %5.1f", name, r.Peak)
			switch {
			case r.Prior:
				b.WriteString("  too little was measured: at least the prior")
			case r.Early:
				fmt.Fprintf(&b, "  too little was measured: base %.1f + %.1f %% of the other %.1f, and %.0f of young pods",
					r.Base, 100*r.Margin, c.Limit-r.Base, c.Young)
			case !r.Known:
				b.WriteString("  not known")
			}
			if r.Known {
				fmt.Fprintf(&b, "  base %.1f + %.1f %% of the other %.1f", r.Base, 100*r.Margin, c.Limit-r.Base)
			}
			if r.Age > 0 {
				fmt.Fprintf(&b, "  last sample %s old", r.Age)
			}
			if r.Checked > 0 {
				fmt.Fprintf(&b, "  %.1f %% of %.0f exceeded", 100*r.Missed, r.Checked)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
