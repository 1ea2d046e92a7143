package agent

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide"
	"github.com/waterline-io/waterline/internal/decide/cpuset"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sealed"
)

// TestState checks that the state survives a restart, and that one that is damaged, of another boot or not there at all is
// no obstacle.
func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), StateFile)
	if s, err := loadState(path); err != nil || !reflect.DeepEqual(s, decide.State{}) {
		t.Errorf("nothing is there: %+v, %v", s, err)
	}
	state := decide.State{CPUs: cpuset.State{
		Known: true, Held: []cpuset.Held{{UID: "a", Container: "b", Mode: model.CPUExclusive, CPUs: model.CPUs(1, 2)}},
		Moves: []time.Time{time.Unix(1e9, 0).UTC()}, Once: []string{"c"},
	}}
	if err := saveState(path, &state); err != nil {
		t.Fatal(err)
	}
	if s, err := loadState(path); err != nil || !reflect.DeepEqual(s, state) {
		t.Errorf("read back: %+v, %v; want %+v", s, err, state)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	body, err := stateKind.Open(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := stateKind.Write(path, []byte(strings.Replace(string(body), bootID(), "another", 1))); err != nil {
		t.Fatal(err)
	}
	if s, err := loadState(path); err != nil || !reflect.DeepEqual(s, decide.State{}) {
		t.Errorf("of another boot: %+v, %v", s, err)
	}
	for _, damaged := range []string{string(content[:len(content)-1]), "waterline-undo 1 crc32 0\n{}", "", string(stateKind.Seal([]byte(`{"State":[]}`))), string(stateKind.Seal([]byte(`{"State":{"CPUs":{"Held":[{"CPUs":"2-1"}]}}}`)))} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := loadState(path)
		if !errors.Is(err, sealed.ErrDamaged) || !reflect.DeepEqual(s, decide.State{}) {
			t.Errorf("%q: %+v, %v", damaged, s, err)
		}
		if _, err := os.Stat(path + ".damaged"); err != nil {
			t.Error(err)
		}
		_ = os.Remove(path + ".damaged")
	}
}
