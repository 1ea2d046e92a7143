package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/contention"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// next returns a round in which some of what another had has come, gone or changed.
func next(r *rand.Rand, was *node.Round) *node.Round {
	is := *was
	is.Node.Capacity.CPU++
	is.Node.Now = time.Unix(is.Node.Capacity.CPU, 0)
	some := func() bool { return r.IntN(4) == 0 }
	file := func() model.File {
		return model.File{Dir: fmt.Sprintf("kubepods/pod%d", r.IntN(20)), Knob: model.Knobs()[r.IntN(4)]}
	}
	if some() {
		is.Node.Pods = slices.DeleteFunc(slices.Clone(is.Node.Pods), func(*model.Pod) bool { return some() })
		for range r.IntN(4) {
			pod := &model.Pod{UID: fmt.Sprint(r.IntN(20)), RequestMilli: r.Int64N(9)}
			if !some() { // else it claims to be another pod
				is.Node.Pods = slices.DeleteFunc(is.Node.Pods, func(p *model.Pod) bool { return p.UID == pod.UID })
			}
			is.Node.Pods = append(is.Node.Pods, pod)
		}
		slices.SortStableFunc(is.Node.Pods, func(a, b *model.Pod) int { return pods.compare(a.UID, b.UID) })
	}
	loads, waits := &model.Load{Clock: time.Duration(r.Int64())}, slices.Clone(is.Node.Waits)
	if is.Node.Load != nil {
		loads.Pods = slices.Clone(is.Node.Load.Pods)
	}
	if len(loads.Pods) == 0 || some() {
		loads.Pods, waits = nil, nil
		for range r.IntN(15) {
			uid := fmt.Sprint(r.IntN(1000))
			loads.Pods, waits = append(loads.Pods, model.PodUsage{UID: uid}), append(waits, model.PodWait{UID: uid})
		}
	}
	for i := range loads.Pods {
		u := &loads.Pods[i]
		u.CPU.At, u.CPU.Milli, u.Pressure.IO.Full = loads.Clock, r.Int64N(1+r.Int64N(900)), r.Int64()-r.Int64()
		u.New = r.IntN(90) == 0
		waits[i].Waited += time.Duration(r.IntN(2))
	}
	is.Node.Load, is.Node.Waits = loads, waits
	is.State.Contention.Baselines = slices.Clone(is.State.Contention.Baselines)
	if b := is.State.Contention.Baselines; len(b) > 0 && some() {
		b[r.IntN(len(b))].Bins[r.IntN(3)].Mean = r.Int64()
	} else if some() {
		is.State.Contention.Baselines = append(b, contention.Baseline{Key: fmt.Sprint(len(b))})
	}
	if some() {
		is.Node.Tree.Pods = maps.Clone(is.Node.Tree.Pods)
		maps.DeleteFunc(is.Node.Tree.Pods, func(string, model.PodGroup) bool { return some() })
		if len(is.Node.Tree.Pods) == 0 {
			is.Node.Tree.Pods = map[string]model.PodGroup{}
		}
		for range r.IntN(4) {
			is.Node.Tree.Pods[fmt.Sprint(r.IntN(20))] = model.PodGroup{
				Dir: fmt.Sprint(r.IntN(3)), Inode: r.Uint64N(3), Idle: some(), Containers: []string{fmt.Sprint(r.IntN(3))},
			}
		}
	}
	if some() {
		is.Node.Owned = slices.DeleteFunc(slices.Clone(is.Node.Owned), func(model.Owned) bool { return some() })
		for range r.IntN(4) {
			o := model.Owned{File: file(), Ours: model.Number(r.Int64N(3))}
			is.Node.Owned = append(slices.DeleteFunc(is.Node.Owned, func(p model.Owned) bool { return p.File == o.File }), o)
		}
		slices.SortFunc(is.Node.Owned, func(a, b model.Owned) int { return a.File.Compare(b.File) })
	}
	if some() {
		is.Plan.Settings = slices.DeleteFunc(slices.Clone(is.Plan.Settings), func(model.Setting) bool { return some() })
		for range r.IntN(9) {
			s := model.Setting{File: file(), Value: model.Number(r.Int64N(3)), Release: some(), Reason: model.Reason{
				Code: model.Weighted, Operands: []model.Operand{{Name: "asked", Value: r.Int64N(2)}}, Fix: fmt.Sprint(r.IntN(2)),
			}}
			if some() {
				s.Deferred = &model.Reason{Code: model.ObserveOnly, Text: fmt.Sprint(r.IntN(2))}
			}
			is.Plan.Settings = append(slices.DeleteFunc(is.Plan.Settings,
				func(p model.Setting) bool { return p.File == s.File }), s)
		}
		slices.SortFunc(is.Plan.Settings, func(a, b model.Setting) int { return a.File.Compare(b.File) })
	}
	return &is
}

// text is a round as a reader sees it: whether a list is absent or empty is all the same.
func text(t *testing.T, r *node.Round) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(":[]"), []byte(":null"))
	return string(bytes.ReplaceAll(text, []byte(":{}"), []byte(":null")))
}

// TestGoesOn: what is read is what was written, through turns of the files, restarts and lines that were cut short,
// after which no round is made of what it did not go on from. Like an agent's, each measurement is where the last was.
func TestGoesOn(t *testing.T) {
	for seed := range fixture.Times(uint64(8)) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir, round, texts := t.TempDir(), &node.Round{}, map[int64]string{}
		j, err := Open(dir, 2_000_000)
		if err != nil {
			t.Fatal(err)
		}
		cut, load, waits := 0, model.Load{}, []model.PodWait{}
		for range 600 {
			round = next(r, round)
			texts[round.Node.Capacity.CPU] = text(t, round)
			load.Clock, load.Pods = round.Node.Load.Clock, append(load.Pods[:0], round.Node.Load.Pods...)
			waits = append(waits[:0], round.Node.Waits...)
			measured := *round
			measured.Node.Load, measured.Node.Waits = &load, waits
			if err := j.Append(&measured); err != nil {
				t.Fatal(err)
			}
			if r.IntN(150) > 0 {
				continue
			}
			if j.size > 10 && r.IntN(2) == 0 {
				cut++
				if err := j.file.Truncate(j.size - 10); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if j, err = Open(dir, 2_000_000); err != nil {
				t.Fatal(err)
			}
		}
		read, bad := rounds(dir)
		for i := range read {
			if is, want := text(t, &read[i]), texts[read[i].Node.Capacity.CPU]; is != want {
				t.Fatalf("seed %d: read\n%s\nwritten\n%s", seed, is, want)
			}
		}
		if bad > cut || len(read) < 200 {
			t.Errorf("seed %d: %d rounds were read and %d not; %d were cut short", seed, len(read), bad, cut)
		}
	}
}

// TestShort: a round like the one before takes a small part of what a whole one does, and who cannot read one line
// cannot read a hundred at most.
func TestShort(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	round := &node.Round{Node: model.Node{Now: time.Unix(1, 0)}}
	round.Node.Tree.Pods = map[string]model.PodGroup{}
	for i := range 110 {
		uid := fmt.Sprintf("%03d", i)
		round.Node.Pods = append(round.Node.Pods, &model.Pod{UID: uid})
		round.Node.Tree.Pods[uid] = model.PodGroup{Dir: uid}
		round.Plan.Settings = append(round.Plan.Settings, model.Setting{File: model.File{Dir: uid, Knob: model.Shares}})
	}
	for range 2*fullLineInterval + 1 {
		copied := *round
		if err := j.Append(&copied); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, current))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	if first, second := len(lines[0]), len(lines[1]); 10*second > first {
		t.Errorf("the second of two equal rounds takes %d bytes, the first %d", second, first)
	}
	lines[3] = []byte("x\n")
	if err := os.WriteFile(filepath.Join(dir, current), bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	read, bad := rounds(dir)
	for i := range read {
		if n := &read[i].Node; len(n.Pods) != 110 || len(n.Tree.Pods) != 110 || len(read[i].Plan.Settings) != 110 {
			t.Fatalf("round %d has %d pods", i, len(n.Pods))
		}
	}
	if bad != fullLineInterval-3 || len(read) != fullLineInterval+4 {
		t.Errorf("%d rounds were read, %d were not", len(read), bad)
	}
}

// TestFewerColumns reads a list as an earlier version wrote it, which did not know the last number of an element: that
// one is as it was. More numbers than are known are refused.
func TestFewerColumns(t *testing.T) {
	type pod struct {
		Milli, Waits int64
		Added        int64 // by this version
	}
	was, is := []pod{{1, 2, 3}, {4, 5, 6}}, []pod{{10, 2, 3}, {4, 50, 6}}
	columns := shortRows(was, is)
	for n := range 2 {
		got, err := longRows(was, columns[:len(columns)-n])
		if err != nil || !slices.Equal(got, is) {
			t.Errorf("%d numbers are not known: %+v, %v", n, got, err)
		}
	}
	if got, err := longRows(was, append(columns, column{})); err == nil {
		t.Errorf("one number too many: %+v", got)
	}
}
