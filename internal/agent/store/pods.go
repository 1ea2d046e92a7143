package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/internal/checkpoint"
	"github.com/waterline-io/waterline/internal/model"
)

// PodsFile is the name of the file in the run directory with what the API last showed of the node.
const PodsFile = "podlist"

const podsKind checkpoint.Kind = "waterline-pods 1"

// podsInterval is the least time between two saves. What a pod requested later is unknown to an agent that was killed,
// and a pod that is younger counts as online.
const podsInterval = 5 * time.Second

// Pods keeps what the API shows of the node, so that an agent that starts while the API server is away goes on
// suppressing batch. A pod that is gone has no cgroup any more, and a pod that came meanwhile counts as online, so an
// old list never gives batch more than a new one.
type Pods struct {
	path  string
	saved time.Time
	dirty bool
}

// savedPods is the content of the file.
type savedPods struct {
	Boot     string // the kernel's boot id: cgroups do not outlive a reboot
	Snapshot model.Snapshot
}

// NewPods returns the pods in a run directory.
func NewPods(runDir string) *Pods { return &Pods{path: filepath.Join(runDir, PodsFile)} }

// Load returns what was saved on this boot; false: nothing was. The error says why a file that exists is not used.
func (p *Pods) Load() (model.Snapshot, bool, error) {
	var s savedPods
	err := podsKind.Read(p.path, func(body []byte) error {
		if err := json.Unmarshal(body, &s); err != nil {
			return fmt.Errorf("decoding it: %w", err)
		}
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return model.Snapshot{}, false, nil
	case err != nil:
		return model.Snapshot{}, false, fmt.Errorf("the list of pods: %w", err)
	}
	return s.Snapshot, s.Snapshot.Known && s.Boot == bootID(), nil
}

// Changed notes that the API shows something else than what was saved.
func (p *Pods) Changed() { p.dirty = true }

// Save saves what the API shows, if it changed and the last time is long enough ago.
func (p *Pods) Save(s *model.Snapshot, now time.Time) error {
	if age := now.Sub(p.saved); !p.dirty || !s.Known || 0 <= age && age < podsInterval { // below 0: the clock was set back
		return nil
	}
	p.dirty, p.saved = false, now // also after an error, which would be the same at once
	body, err := json.Marshal(savedPods{Boot: bootID(), Snapshot: *s})
	if err != nil {
		return fmt.Errorf("encoding the list of pods: %w", err)
	}
	if err := podsKind.Write(p.path, body); err != nil {
		return fmt.Errorf("the list of pods: %w", err)
	}
	return nil
}
