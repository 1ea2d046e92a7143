package experiment

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestOverwrite runs the writer on a plain file that a second goroutine repairs.
func TestOverwrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu.shares")
	if err := os.WriteFile(file, []byte("8192"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(time.Millisecond):
				// Pwrite does not truncate a plain file, as the kernel's would.
				if err := os.WriteFile(file, []byte("8192"), 0o600); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	var out bytes.Buffer
	o := overwriting{Files: []overwritten{{Path: file, Value: 8192}}, Length: time.Second, Seed: 1}
	err := o.run(&out)
	close(stop)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 2 {
		t.Fatalf("only %q", lines)
	}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "0" {
			t.Fatalf("line %q", line)
		}
		if took, err := strconv.ParseFloat(fields[1], 64); err != nil || math.IsNaN(took) || took <= 0 {
			t.Errorf("line %q: %v", line, err)
		}
	}
}
