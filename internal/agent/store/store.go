// Package store keeps what an agent leaves for the next one, for the guards of pods and for people, in its run
// directory: the state of the decisions, the pods, the allowances, the journal, and the lock on the directory.
package store

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/journal"
)

// Store holds the run directory for one agent.
type Store struct {
	State      *StateFiles
	Pods       *Pods
	Allowances *Allowances
	Journal    *journal.Journal

	dirs []string // the run directory, and the state directory if there is one
	lock *os.File
}

// Open locks the run directory and opens its files. The journal holds at most about the given number of bytes. An empty
// state directory keeps nothing over a reboot. Open fails if another agent uses the run directory.
func Open(runDir, stateDir string, journalBytes int64) (*Store, error) {
	lock, err := Lock(runDir)
	if err != nil {
		return nil, err
	}
	s := &Store{Allowances: NewAllowances(runDir), Pods: NewPods(runDir), lock: lock, dirs: []string{runDir}}
	if stateDir != "" {
		s.dirs = append(s.dirs, stateDir)
	}
	if s.State, err = OpenState(runDir, stateDir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if s.Journal, err = journal.Open(runDir, journalBytes); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// Close closes the files and releases the lock.
func (s *Store) Close() error { return errors.Join(s.Journal.Close(), s.lock.Close()) }

// Remove removes everything that an agent left in its directories, and further files of these names, but not the
// directories. The store must not be used afterwards, except that it is closed.
func (s *Store) Remove(files ...string) error {
	files = append(files, StateFile, PodsFile, PodsDir, lockFile)
	files = append(files, journal.Files()...)
	var errs []error
	for _, dir := range s.dirs {
		for _, name := range files {
			path := filepath.Join(dir, name)
			others, err := filepath.Glob(path + ".v*") // of other versions
			errs = append(errs, err)
			for _, path := range append(others, path, path+".new", path+".damaged") {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	return errors.Join(errs...)
}
