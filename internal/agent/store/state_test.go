package store

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/checkpoint"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestState checks that the state survives a restart. An absent or damaged file yields an empty state, and a state of
// another boot yields only what was learned.
func TestState(t *testing.T) {
	run, lasting := t.TempDir(), filepath.Join(t.TempDir(), "made")
	path := filepath.Join(run, StateFile)
	keep, err := OpenState(run, lasting)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want node.State) {
		t.Helper()
		got, err := keep.Load()
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if d := fixture.Diff(want, got); d != "" {
			t.Errorf("%s: the state differs (-want +got):\n%s", when, d)
		}
	}
	expect("without a file", node.State{})
	state := node.State{CPUs: cpuset.State{
		Known: true, Allocations: []cpuset.Allocation{{UID: "a", Container: "b", Mode: model.CPUExclusive,
			CPUs: model.CPUs(1, 2)}},
		Moves: []time.Time{time.Unix(1e9, 0).UTC()}, Once: []string{"c"},
	}}
	learned := &predict.Predictor{}
	learned.Observe(predict.Config{Limit: 10}, time.Unix(1e9, 0), 5)
	state.Peaks = predict.State{CPU: learned, Minute: state.Peaks.Minute}
	state.Slack.Clock = time.Hour
	if err := keep.Save(&state, time.Now()); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	keep.Copy(ended, faillog.New(slog.New(slog.DiscardHandler))) // writes the last copy
	expect("read back", state)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	body, err := stateKind.Decode(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := stateKind.Write(path, []byte(strings.Replace(string(body), bootID(), "another", 1))); err != nil {
		t.Fatal(err)
	}
	expect("of another boot", node.State{Peaks: predict.State{CPU: learned}})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("from the state directory", state)
	for _, damaged := range []string{
		string(content[:len(content)-1]), "waterline-undo 1 crc32 0\n{}", "",
		string(stateKind.Encode([]byte(`{"State":[]}`))),
		string(stateKind.Encode([]byte(`{"State":{"CPUs":{"Allocations":[{"CPUs":"2-1"}]}}}`))),
	} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := keep.Load()
		if !errors.Is(err, checkpoint.ErrDamaged) {
			t.Errorf("%q: %v", damaged, err)
		}
		if d := fixture.Diff(node.State{}, got); d != "" {
			t.Errorf("%q: the state is not empty (-want +got):\n%s", damaged, d)
		}
		if _, err := os.Stat(path + ".damaged"); err != nil {
			t.Error(err)
		}
		_ = os.Remove(path + ".damaged")
	}
}

// TestStateOfAnotherVersion upgrades and goes back. Each version finds what it learned itself, and no allocation of
// CPUs from before the other one ran.
func TestStateOfAnotherVersion(t *testing.T) {
	const next checkpoint.Kind = "waterline-state 2"
	run, lasting := t.TempDir(), t.TempDir()
	keep, err := OpenState(run, lasting)
	if err != nil {
		t.Fatal(err)
	}
	learned := &predict.Predictor{}
	learned.Observe(predict.Config{Limit: 10}, time.Unix(1e9, 0), 5)
	state := node.State{Peaks: predict.State{CPU: learned}}
	state.CPUs.Known = true
	if err := keep.Save(&state, time.Now()); err != nil {
		t.Fatal(err)
	}
	// The next version starts: it does what this one does.
	for _, path := range []string{keep.run, keep.lasting} {
		if aside, err := next.SetAside(path); err != nil || path == keep.run && aside != stateKind.Aside(path) {
			t.Fatalf("%q, %v", aside, err)
		}
		if err := next.Write(path, []byte("new")); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string) error {
		t.Helper()
		got, err := keep.Load()
		if d := fixture.Diff(node.State{Peaks: predict.State{CPU: learned}}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
		return err
	}
	err = expect("after a downgrade")
	if err == nil || !strings.Contains(err.Error(), "for that version") || errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("the reason is %v", err)
	}
	for _, path := range []string{keep.run, keep.lasting} {
		content, err := os.ReadFile(next.Aside(path))
		if want := string(next.Encode([]byte("new"))); err != nil || string(content) != want {
			t.Errorf("what the next version left is now %q, %v", content, err)
		}
	}

	// The next version had no state directory: what this one left there is older than that version's allocations.
	if err := keep.Last(&state, time.Now()); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	keep.Copy(ended, faillog.New(slog.New(slog.DiscardHandler)))
	if err := next.Write(keep.run, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := expect("with an older copy in the state directory"); err == nil {
		t.Error("the state of the next version is not mentioned")
	}
}

// TestStateDue checks that a killed agent finds its offers, measured at most 30 s before, and that a copy for the disk
// is made rarely.
func TestStateDue(t *testing.T) {
	run, lasting := t.TempDir(), t.TempDir()
	keep, err := OpenState(run, lasting)
	if err != nil {
		t.Fatal(err)
	}
	var state node.State
	now := keep.at
	for range 40 { // minutes
		for second := range 60 {
			now = now.Add(time.Second)
			state.Slack.Clock += time.Second
			state.Slack.CPU.Measured = state.Slack.Clock
			if second == 30 {
				state.Slack.CPU.Batch.Offer += 100
			}
			if keep.Due(&state, now) {
				if err := keep.Save(&state, now); err != nil {
					t.Fatal(err)
				}
			}
			found, err := readState(keep.run)
			if second >= 30 && err != nil {
				t.Fatal(err)
			}
			if err != nil {
				continue
			}
			old, now := found.Slack.CPU, state.Slack.CPU
			if old.Batch.Offer != now.Batch.Offer || state.Slack.Clock-old.Measured > 30*time.Second {
				t.Fatalf("an agent killed now finds %+v, but offered %+v", old, now)
			}
		}
	}
	select {
	case <-keep.copies:
	default:
		t.Error("no copy for the disk in 40 minutes")
	}
	if since := now.Sub(keep.copied); since < 5*time.Minute || since >= lastingInterval {
		t.Errorf("the last copy for the disk was made %s ago", since)
	}
	if err := keep.Last(&state, now); err != nil || len(keep.copies) != 1 {
		t.Errorf("at the end: %v, %d copies", err, len(keep.copies))
	}
}
