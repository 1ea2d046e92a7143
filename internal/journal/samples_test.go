package journal

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/interference"
	"github.com/waterline-io/waterline/internal/model"
)

// TestSamples checks that the samples of interference are read as they were written while pods come and go, and that a
// line is short although there are two numbers more for each pod every five seconds.
func TestSamples(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	in := interference.Input{Clock: time.Hour}
	var last node.Round
	next := 0
	whole, lines := 0, 0
	for second := range 900 {
		in.Clock += time.Second
		if second%7 == 0 || len(in.Pods) < 20 {
			in.Pods = append(in.Pods, interference.Pod{UID: fmt.Sprintf("pod-%04d", next), Online: next%2 == 0, New: second > 0})
			next++
		}
		if second%9 == 0 && len(in.Pods) > 30 {
			in.Pods = in.Pods[1:]
		}
		for i := range in.Pods {
			p := &in.Pods[i]
			p.UsedAt, p.Used = in.Clock, r.Int64N(4000)
			p.Lacked = model.Lack{At: in.Clock, Wait: p.Lacked.Wait + time.Duration(r.Int64N(int64(time.Second)))}
		}
		var state interference.State
		if last.State.Interference != nil {
			state = *last.State.Interference
		}
		round := node.Round{Node: model.Node{Now: time.Unix(int64(second+1), 0).UTC()}}
		_, state = interference.Decide(in, state)
		round.State.Interference = &state
		for i := range in.Pods {
			in.Pods[i].New = false
		}
		if second > 0 {
			l := shorten(&round, &last)
			text, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			read, err := parse(text, &last)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(read.State.Interference, round.State.Interference) {
				t.Fatalf("second %d: read\n%+v, not\n%+v", second, read.State.Interference, round.State.Interference)
			}
			all, err := json.Marshal(round)
			if err != nil {
				t.Fatal(err)
			}
			whole, lines = whole+len(all), lines+len(text)
		}
		last = round
	}
	t.Logf("%d bytes in lines, of %d", lines, whole)
	if lines*3 > whole {
		t.Errorf("lines have %d bytes, and rounds %d", lines, whole)
	}
}
