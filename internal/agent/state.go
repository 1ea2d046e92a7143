package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/waterline-io/waterline/internal/decide"
	"github.com/waterline-io/waterline/internal/sealed"
)

// StateFile is the name of the file in the run directory that holds what the decisions must remember over a restart.
const StateFile = "state"

const stateKind sealed.Kind = "waterline-state 1"

// savedState is the state as it stands in its file.
type savedState struct {
	Boot  string // the kernel's boot id: who had which CPUs says nothing after a reboot
	State decide.State
}

// loadState reads the state that was saved since the machine booted, or returns an empty one. The error says why a state
// that is there is not used; then who has which CPUs is gathered from the cgroups.
func loadState(path string) (decide.State, error) {
	var saved savedState
	err := stateKind.Read(path, func(body []byte) error {
		if err := json.Unmarshal(body, &saved); err != nil {
			return fmt.Errorf("decoding it: %w", err)
		}
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return decide.State{}, nil
	case err != nil:
		return decide.State{}, fmt.Errorf("the state: %w", err)
	case saved.Boot != bootID():
		return decide.State{}, nil
	}
	return saved.State, nil
}

func saveState(path string, state *decide.State) error {
	body, err := json.Marshal(savedState{Boot: bootID(), State: *state})
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	if err := stateKind.Write(path, body); err != nil {
		return fmt.Errorf("the state: %w", err)
	}
	return nil
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // what cannot be read is the same every time
	return strings.TrimSpace(string(id))
}
