package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// PodsDir is the directory in the run directory that has a directory for each pod of a worker pool.
const PodsDir = "pods"

// AllowanceFile is the name of the file with the allowance in a pod's directory.
const AllowanceFile = "allowance.json"

// Allowance is what a pod of a worker pool may use now, for the guard beside it. It is written when it changes and
// every ten seconds. An allowance older than Seconds is void: the agent is gone, and the limits in the kernel are the
// last ones.
type Allowance struct {
	CPUMilli    int64     `json:"cpuMilli"`    // milli-cores
	MemoryBytes int64     `json:"memoryBytes"` // bytes
	Time        time.Time `json:"time"`        // when it was written
	Seconds     int       `json:"seconds"`     // for which it is valid
	Reason      string    `json:"reason"`      // of the limit of batch, or of the pod's throttle
}

const (
	allowanceInterval = 10 * time.Second
	allowanceCounts   = 30 // seconds
)

// Allowances keeps the files.
type Allowances struct {
	dir     string
	written map[string]Allowance // by UID
}

// NewAllowances returns the allowances in a run directory.
func NewAllowances(runDir string) *Allowances {
	return &Allowances{dir: filepath.Join(runDir, PodsDir)}
}

// Write updates the files to a plan. It removes the files of pods that are gone or that the plan does not limit. In any
// mode but Enforce there are no files.
func (w *Allowances) Write(n *model.Node, policy *model.Policy, plan *model.Plan) error {
	if !n.PodsKnown || policy.Mode != model.ModeEnforce {
		return w.write(nil, nil, nil, n.Now)
	}
	return w.write(plan.Pods, plan.Suppress, plan.Interference, n.Now)
}

func (w *Allowances) write(pods []*model.Pod, s *model.Suppression, b *model.Interference, now time.Time) error {
	var parts map[string]Allowance
	news := w.written == nil
	for _, pod := range pods {
		if pod.Pool == "" || pod.Ended || s == nil || !cgroup.ValidUID(pod.UID) {
			continue
		}
		p, found := s.Part(pod.UID)
		if !found {
			continue
		}
		if parts == nil {
			parts = map[string]Allowance{}
		}
		a := Allowance{CPUMilli: p.Milli, MemoryBytes: p.Memory, Time: now, Seconds: allowanceCounts}
		if t := b.Throttle(pod.UID); t != nil {
			a.CPUMilli = min(a.CPUMilli, t.Milli)
		}
		parts[pod.UID] = a
		news = news || !a.stands(w.written[pod.UID])
	}
	if !news && len(parts) == len(w.written) {
		return nil
	}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of allowances: %w", err)
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return fmt.Errorf("opening the directory of allowances: %w", err)
	}
	defer root.Close()
	if w.written == nil { // files of an earlier agent
		w.written = map[string]Allowance{}
		old, err := fs.ReadDir(root.FS(), ".")
		if err != nil {
			return fmt.Errorf("listing allowances: %w", err)
		}
		for _, entry := range old {
			w.written[entry.Name()] = Allowance{}
		}
	}
	var errs []error
	for uid := range w.written {
		if _, still := parts[uid]; still {
			continue
		}
		if err := root.RemoveAll(uid); err != nil {
			errs = append(errs, fmt.Errorf("removing an allowance: %w", err))
			continue
		}
		delete(w.written, uid)
	}
	for uid, a := range parts {
		if a.stands(w.written[uid]) {
			continue
		}
		a.Reason = s.Reason.String()
		if t := b.Throttle(uid); t != nil && t.Milli == a.CPUMilli {
			a.Reason = t.Reason().String()
		}
		if err := replace(root, uid, &a); err != nil {
			errs = append(errs, err)
			continue
		}
		w.written[uid] = a
	}
	return errors.Join(errs...)
}

// stands reports whether an allowance that was written before has the same content and is not due for renewal.
func (a *Allowance) stands(was Allowance) bool {
	age := a.Time.Sub(was.Time)
	return was.CPUMilli == a.CPUMilli && was.MemoryBytes == a.MemoryBytes && 0 <= age && age < allowanceInterval
}

// replace writes a pod's file atomically: a reader sees the old content or the new.
func replace(root *os.Root, uid string, a *Allowance) error {
	text, err := json.Marshal(a)
	if err == nil {
		err = root.MkdirAll(uid, 0o755)
	}
	name := path.Join(uid, AllowanceFile)
	if err == nil {
		err = root.WriteFile(name+".new", append(text, '\n'), 0o644)
	}
	if err == nil {
		err = root.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("writing an allowance: %w", err)
	}
	return nil
}
