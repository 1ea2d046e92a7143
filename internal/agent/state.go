package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/decide"
	"github.com/waterline-io/waterline/internal/decide/cpuset"
	"github.com/waterline-io/waterline/internal/decide/predict"
	"github.com/waterline-io/waterline/internal/sealed"
)

// StateFile is the name of the file that holds what the decisions must remember over a restart. It stands in the run
// directory and, for what outlives a reboot, in the state directory.
const StateFile = "state"

const stateKind sealed.Kind = "waterline-state 1"

// checkpoint is how often the state is saved though nothing asks for it, so that at most this much of what was learned is
// lost.
const checkpoint = 15 * time.Minute

// savedState is the state as it stands in its file.
type savedState struct {
	Boot  string // the kernel's boot id: who had which CPUs says nothing after a reboot
	State decide.State
}

// memory keeps the state in its files.
type memory struct {
	run, lasting string // paths; lasting is "" where nothing outlives a reboot
	saved        cpuset.State
	at           time.Time   // when the state was saved last
	copies       chan []byte // for the lasting file
}

func newMemory(runDir, stateDir string) (*memory, error) {
	m := &memory{run: filepath.Join(runDir, StateFile), at: time.Now(), copies: make(chan []byte, 1)}
	if stateDir == "" || stateDir == runDir {
		return m, nil
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	m.lasting = filepath.Join(stateDir, StateFile)
	return m, nil
}

// load returns the state that was saved, as far as it still counts: all of it since the machine booted, of before that
// only what was learned of the online pods. The error says why a state that is there is not used; then who has which
// CPUs is gathered from the cgroups.
func (m *memory) load() (decide.State, error) {
	state, err := readState(m.run)
	if errors.Is(err, fs.ErrNotExist) && m.lasting != "" {
		state, err = readState(m.lasting)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	m.saved = state.CPUs
	return state, err
}

func readState(path string) (decide.State, error) {
	var s savedState
	err := stateKind.Read(path, func(body []byte) error {
		if err := json.Unmarshal(body, &s); err != nil {
			return fmt.Errorf("decoding it: %w", err)
		}
		return nil
	})
	switch {
	case err != nil:
		return decide.State{}, fmt.Errorf("the state: %w", err)
	case s.Boot != bootID():
		p := s.State.Peaks
		return decide.State{Peaks: predict.State{CPU: p.CPU, Memory: p.Memory, Owners: p.Owners}}, nil
	}
	return s.State, nil
}

// due reports whether the state must be saved: who has which CPUs has changed, or it is time for a checkpoint.
func (m *memory) due(state *decide.State, now time.Time) bool {
	return now.Sub(m.at) >= checkpoint || !reflect.DeepEqual(state.CPUs, m.saved)
}

// save writes the state to the run directory now, and has it copied to the state directory: that is on a disk, on which
// nobody who repairs cgroups should wait.
func (m *memory) save(state *decide.State, now time.Time) error {
	body, err := json.Marshal(savedState{Boot: bootID(), State: *state})
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	select {
	case <-m.copies: // an older one that was not written yet
	default:
	}
	m.copies <- body
	if err := stateKind.Write(m.run, body); err != nil {
		return fmt.Errorf("the state: %w", err)
	}
	m.saved, m.at = state.CPUs, now
	return nil
}

// copy writes what save leaves for the state directory until the context ends, and the last of it then.
func (m *memory) copy(ctx context.Context, log *troubles) {
	write := func(body []byte) {
		if m.lasting != "" {
			log.report("state", stateKind.Write(m.lasting, body))
		}
	}
	for {
		select {
		case body := <-m.copies:
			write(body)
		case <-ctx.Done():
			select {
			case body := <-m.copies:
				write(body)
			default:
			}
			return
		}
	}
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // what cannot be read is the same every time
	return strings.TrimSpace(string(id))
}
