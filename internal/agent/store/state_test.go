package store

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent/trouble"
	"github.com/waterline-io/waterline/internal/checkpoint"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/model"
)

// TestState checks that the state survives a restart, and that one that is damaged, of another boot or not there at all
// is no obstacle.
func TestState(t *testing.T) {
	run, lasting := t.TempDir(), filepath.Join(t.TempDir(), "made")
	path := filepath.Join(run, StateFile)
	keep, err := OpenState(run, lasting)
	if err != nil {
		t.Fatal(err)
	}
	loadState := func() (node.State, error) { return keep.Load() }
	if s, err := loadState(); err != nil || !reflect.DeepEqual(s, node.State{}) {
		t.Errorf("nothing is there: %+v, %v", s, err)
	}
	state := node.State{CPUs: cpuset.State{
		Known: true, Allocations: []cpuset.Allocation{
			{UID: "a", Container: "b", Mode: model.CPUExclusive, CPUs: model.CPUs(1, 2)},
		},
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
	keep.Copy(ended, trouble.New(slog.New(slog.DiscardHandler))) // writes the last copy
	if s, err := loadState(); err != nil || !reflect.DeepEqual(s, state) {
		t.Errorf("read back: %+v, %v; want %+v", s, err, state)
	}
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
	onlyLearned := node.State{Peaks: predict.State{CPU: learned}}
	if s, err := loadState(); err != nil || !reflect.DeepEqual(s, onlyLearned) {
		t.Errorf("of another boot: %+v, %v", s, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if s, err := loadState(); err != nil || !reflect.DeepEqual(s, state) {
		t.Errorf("from the state directory: %+v, %v; want %+v", s, err, state)
	}
	for _, damaged := range []string{
		string(content[:len(content)-1]), "waterline-undo 1 crc32 0\n{}", "",
		string(stateKind.Encode([]byte(`{"State":[]}`))),
		string(stateKind.Encode([]byte(`{"State":{"CPUs":{"Allocations":[{"CPUs":"2-1"}]}}}`))),
	} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := loadState()
		if !errors.Is(err, checkpoint.ErrDamaged) || !reflect.DeepEqual(s, node.State{}) {
			t.Errorf("%q: %+v, %v", damaged, s, err)
		}
		if _, err := os.Stat(path + ".damaged"); err != nil {
			t.Error(err)
		}
		_ = os.Remove(path + ".damaged")
	}
}

// TestStateDue checks that an agent that is killed finds what it offered, measured less than a minute ago, and that the
// disk is left alone meanwhile.
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
			if err == nil && (found.Slack.CPU.Batch.Offer != state.Slack.CPU.Batch.Offer ||
				state.Slack.Clock-found.Slack.CPU.Measured > 30*time.Second) {
				t.Fatalf("killed now it finds %+v, and offered %+v", found.Slack.CPU, state.Slack.CPU)
			}
		}
	}
	select {
	case <-keep.copies:
	default:
		t.Error("in 40 minutes nothing was left for the disk")
	}
	if since := now.Sub(keep.copied); since < 5*time.Minute || since >= lastingEvery {
		t.Errorf("the last copy was left %s ago", since)
	}
	if err := keep.Last(&state, now); err != nil || len(keep.copies) != 1 {
		t.Errorf("at the end: %v, %d copies", err, len(keep.copies))
	}
}
