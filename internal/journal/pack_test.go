package journal

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestHolds: beside 110 busy pods, a journal of the chart's size holds half an hour, and each round replays.
func TestHolds(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	all := busy(201)
	for _, r := range all {
		if err := j.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	size, rounds := held(t, dir)
	if minutes := float64(8<<20) / float64(size) * float64(rounds) / 60; rounds != len(all) || minutes < 30 {
		t.Errorf("%d rounds take %d bytes: 8 MiB hold %.1f minutes", rounds, size, minutes)
	}
	i := 0
	for r, err := range Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if is, want := text(t, &r), text(t, all[i]); is != want {
			t.Fatalf("round %d: read\n%s\nwritten\n%s", i, is, want)
		}
		if i++; i%20 > 0 {
			continue
		}
		if differ, err := Replay(&r); err != nil || len(differ) > 0 {
			t.Fatalf("round %d: %+v, %v", i, differ, err)
		}
	}
}

// TestUnpack: the text of a journal is JSON lines that can be read like it, as earlier versions wrote them.
func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	r, round := rand.New(rand.NewPCG(1, 2)), &node.Round{}
	for range 2*fullLineInterval + 7 {
		round = next(r, round)
		if err := j.Append(round); err != nil {
			t.Fatal(err)
		}
	}
	var packed, lines bytes.Buffer
	if err := Copy(&packed, dir); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(&lines, bytes.NewReader(packed.Bytes())); err != nil {
		t.Fatal(err)
	}
	plain := lines.String()
	if n := strings.Count(plain, `{"Node":{"Now":`); n != 2*fullLineInterval+7 || strings.Contains(plain, "Packed") {
		t.Errorf("%d lines of text", n)
	}
	var texts []string
	for _, from := range []*bytes.Buffer{&packed, &lines} {
		var all strings.Builder
		for r, err := range ReadFrom(from, "j") {
			if err != nil {
				t.Fatal(err)
			}
			all.WriteString(text(t, &r))
		}
		texts = append(texts, all.String())
	}
	if texts[0] != texts[1] {
		t.Error("the text of a journal is read as something else than the journal")
	}
}

// TestDamaged: whatever becomes of a line, reading ends, and yields no round that was not written.
func TestDamaged(t *testing.T) {
	for seed := range fixture.Times(uint64(300)) {
		r := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		j, err := Open(dir, 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		written, round := map[string]bool{}, &node.Round{Node: model.Node{Now: time.Unix(1, 0)}}
		for range 6 {
			round = next(r, round)
			written[text(t, round)] = true
			if err := j.Append(round); err != nil {
				t.Fatal(err)
			}
		}
		var content bytes.Buffer
		if err := Copy(&content, dir); err != nil {
			t.Fatal(err)
		}
		_ = j.Close()
		lines := bytes.SplitAfter(content.Bytes(), []byte("\n"))
		k := r.IntN(6)
		switch r.IntN(3) {
		case 0:
			lines[k] = append(lines[k][:r.IntN(len(lines[k]))], '\n')
		case 1:
			lines[k] = nil
		default:
			lines[k], lines[(k+1)%6] = lines[(k+1)%6], lines[k]
		}
		for got, err := range ReadFrom(bytes.NewReader(bytes.Join(lines, nil)), "j") {
			if err == nil && !written[text(t, &got)] {
				t.Fatalf("seed %d: a round was read that was not written: %s", seed, text(t, &got))
			}
		}
	}
}
