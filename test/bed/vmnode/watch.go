package vmnode

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"time"
)

// Watch reads files again and again.
type Watch struct {
	Files []string
	For   time.Duration
	Every time.Duration // between two looks at all of them; 0: as fast as it goes, a millisecond at least
}

// Change is a file that read differently than before, or for the first time.
type Change struct {
	At    time.Duration // since the beginning
	File  int           // its place in Files
	Value string        // without the newline; "" if the file is not there
}

// Run looks until the time is over or the context ends.
func (w Watch) Run(ctx context.Context) []Change {
	changes := []Change{}
	last := make([]*string, len(w.Files))
	began := time.Now()
	tick := time.NewTicker(max(w.Every, time.Millisecond))
	defer tick.Stop()
	for {
		for i, file := range w.Files {
			content, err := os.ReadFile(file)
			if err != nil {
				content = nil
			}
			value := string(bytes.TrimSpace(content))
			if last[i] == nil || *last[i] != value {
				changes = append(changes, Change{time.Since(began), i, value})
				last[i] = &value
			}
		}
		if time.Since(began) >= w.For {
			return changes
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return changes
		}
	}
}

// First waits for the first process in a cgroup that was not populated before, and then reads a file at once.
type First struct {
	Glob string // of cgroup.procs files
	File string // relative to the directory of the one that has a process: what to read
	For  time.Duration
}

// Run returns the content of the file, without the newline, or "" if no process appeared in time.
func (f First) Run(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, f.For)
	defer cancel()
	before := map[string]bool{}
	for first := true; ctx.Err() == nil; first = false {
		procs, _ := filepath.Glob(f.Glob)
		for _, file := range procs {
			if pids, _ := os.ReadFile(file); before[file] || len(pids) == 0 {
				continue
			}
			before[file] = true
			if !first {
				content, _ := os.ReadFile(filepath.Join(filepath.Dir(file), f.File))
				return string(bytes.TrimSpace(content))
			}
		}
		time.Sleep(200 * time.Microsecond)
	}
	return ""
}
