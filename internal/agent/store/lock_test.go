package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLocked checks that asking for the owner of a run directory changes nothing there.
func TestLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if locked, err := Locked(dir); locked || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v, %v", locked, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("asking made the directory")
	}
	lock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if locked, err := Locked(dir); !locked || err != nil {
		t.Errorf("locked: %v, %v", locked, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if locked, err := Locked(dir); locked || err != nil {
		t.Errorf("not locked any more: %v, %v", locked, err)
	}
	if again, err := Lock(dir); err != nil {
		t.Error("asking keeps the directory locked:", err)
	} else {
		_ = again.Close()
	}
}
