package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
)

// allowanceFile is the file that the kubelet makes of the pod's annotation.
type allowanceFile struct {
	path    string
	content []byte
	last    shed.Allowance
}

// read returns the allowance, and whether it is another than before. A file that is empty or not there is none. While
// the file cannot be read, the allowance before it counts.
func (f *allowanceFile) read() (a shed.Allowance, changed bool, err error) {
	content, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.last, false, fmt.Errorf("reading the allowance: %w", err)
	}
	if bytes.Equal(content, f.content) {
		return f.last, false, nil
	}
	a, err = parseAllowance(content)
	if err != nil {
		return f.last, false, fmt.Errorf("%s: %w", f.path, err)
	}
	f.content, f.last = content, a
	return a, true, nil
}

// parseAllowance parses the annotation waterline.io/pool-allowance.
func parseAllowance(content []byte) (shed.Allowance, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return shed.Allowance{}, nil
	}
	var a struct {
		MemoryMiB *int64    `json:"memoryMiB"`
		VCores    *int64    `json:"vcores"`
		Until     time.Time `json:"until"`
	}
	if err := json.Unmarshal(content, &a); err != nil {
		return shed.Allowance{}, fmt.Errorf("%.100q is no allowance: %w", content, err)
	}
	if a.MemoryMiB == nil || a.VCores == nil || *a.MemoryMiB < 0 || *a.VCores < 0 {
		return shed.Allowance{}, fmt.Errorf("%.100q is no allowance: memoryMiB and vcores must be 0 or more", content)
	}
	return shed.Allowance{MemoryMiB: *a.MemoryMiB, VCores: *a.VCores, Until: a.Until}, nil
}
