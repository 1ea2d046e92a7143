package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/checkpoint"
	"github.com/waterline-io/waterline/internal/decide/node"
)

// StateFile is the name of the file with the state of the decisions. It is in the run directory and, for the part that
// outlives a reboot, in the state directory.
const StateFile = "state"

const stateKind checkpoint.Kind = "waterline-state 1"

// lastingInterval is how often the state is copied to the disk although no allocation of CPUs changed: a reboot loses
// no more than that. The run directory is in memory and written far more often: an agent that was killed keeps its
// offers only if they rest on a measurement of the last minute (see package slack).
const lastingInterval = 15 * time.Minute

// savedState is the state as it stands in its file.
type savedState struct {
	Boot  string // the kernel's boot id: allocations of CPUs mean nothing after a reboot
	State node.State
}

// StateFiles keeps the state in its files.
type StateFiles struct {
	run, lasting string // paths; lasting is "" where nothing outlives a reboot
	saved        node.State
	at           time.Time   // when the state was saved last
	copied       time.Time   // when it was last left for the lasting file
	copies       chan []byte // for the lasting file
}

// OpenState returns the files of a state. An empty state directory keeps nothing over a reboot.
func OpenState(runDir, stateDir string) (*StateFiles, error) {
	now := time.Now()
	m := &StateFiles{run: filepath.Join(runDir, StateFile), at: now, copied: now, copies: make(chan []byte, 1)}
	if stateDir == "" || stateDir == runDir {
		return m, nil
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	m.lasting = filepath.Join(stateDir, StateFile)
	return m, nil
}

// Load returns the part of the saved state that still counts: all of a state of this boot, and of an earlier one only
// the usage of the online pods in the past. The error says why a state that exists is not used; then the allocations of
// CPUs are gathered from the cgroups.
//
// A state of another version is kept for that version. If another version ran last, what this one left is old, and only
// the usage of the online pods counts.
func (m *StateFiles) Load() (node.State, error) {
	var errs []error
	paths := []string{m.run}
	if m.lasting != "" {
		paths = append(paths, m.lasting)
	}
	another := false // version wrote the state last
	for _, path := range paths {
		aside, err := stateKind.SetAside(path)
		if aside != "" {
			another = another || path == m.run
			err = fmt.Errorf("another version of Waterline wrote it; it was moved to %s for that version", aside)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the state: %w", err))
		}
	}
	state, err := readFirst(paths)
	if errors.Is(err, fs.ErrNotExist) {
		for i := range paths {
			paths[i] = stateKind.Aside(paths[i])
		}
		state, err = readFirst(paths)
		another = true
	}
	if another {
		state = state.Learned()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	m.saved = state
	return state, errors.Join(errs...)
}

// readFirst reads the first of some files that exists.
func readFirst(paths []string) (state node.State, err error) {
	for _, path := range paths {
		if state, err = readState(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return state, err
}

func readState(path string) (node.State, error) {
	var s savedState
	err := stateKind.Read(path, func(body []byte) error {
		if err := json.Unmarshal(body, &s); err != nil {
			return fmt.Errorf("decoding it: %w", err)
		}
		return nil
	})
	switch {
	case err != nil:
		return node.State{}, fmt.Errorf("the state: %w", err)
	case s.Boot != bootID():
		return s.State.Learned(), nil
	}
	return s.State, nil
}

// Due reports whether the state must be saved before the next writes to the kernel.
func (m *StateFiles) Due(state *node.State, now time.Time) bool {
	return state.MustSave(&m.saved, now.Sub(m.at))
}

// Save writes the state to the run directory. If that is due, Copy writes it to the state directory too: that is on a
// disk, which must not delay repairs of cgroup files.
func (m *StateFiles) Save(state *node.State, now time.Time) error {
	body, err := json.Marshal(savedState{Boot: bootID(), State: state.Saved()})
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	if now.Sub(m.copied) >= lastingInterval || state.CPUsDiffer(&m.saved) {
		select {
		case <-m.copies: // an older state that was not written yet
		default:
		}
		m.copies <- body
		m.copied = now
	}
	if err := stateKind.Write(m.run, body); err != nil {
		return fmt.Errorf("the state: %w", err)
	}
	m.saved, m.at = *state, now
	return nil
}

// Last saves the state before the agent ends.
func (m *StateFiles) Last(state *node.State, now time.Time) error {
	m.copied = time.Time{}
	return m.Save(state, now)
}

// Copy writes what Save leaves for the state directory until the context ends, and what is left then.
func (m *StateFiles) Copy(ctx context.Context, log *faillog.Log) {
	write := func(body []byte) {
		if m.lasting != "" {
			log.Report("state", stateKind.Write(m.lasting, body))
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
