package headline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindMachine finds machines by their names, and the first one with a whole day.
func TestFindMachine(t *testing.T) {
	root := t.TempDir()
	pool := func(name string, minutes int) {
		var b strings.Builder
		b.WriteString("minute_epoch,cpu_used_units\n")
		for i := range minutes {
			fmt.Fprintf(&b, "%d,%d\n", i, 7)
		}
		dir := filepath.Join(root, "cloudcluster-pools")
		if err := errors.Join(os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, name+".csv"), []byte(b.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := FindMachine(root, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found %s where there is nothing: %v", m.Name, err)
	}
	pool("a", 10)
	pool("b", 1440)
	for name, want := range map[string]string{"": "b", "a": "a", "b": "b"} {
		if m, err := FindMachine(root, name); err != nil || m.Name != want {
			t.Errorf("%q is %s, %v", name, m.Name, err)
		}
	}
	if _, err := FindMachine(root, "c"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
