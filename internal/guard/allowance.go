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
	content []byte         // nil: there was no allowance yet
	last    shed.Allowance // that content says
}

// read returns the allowance, and whether it is another than before. While the file cannot be read, is not there or is
// empty, the allowance before it counts: without it, a deadline would be forgotten. Before the first allowance, a file
// that is not there or empty is none, because the kubelet makes an empty file of an annotation that is not there.
func (f *allowanceFile) read() (a shed.Allowance, changed bool, err error) {
	content, err := os.ReadFile(f.path)
	none := errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(content)) == 0
	switch {
	case none && f.content == nil:
		return shed.Allowance{}, false, nil
	case none:
		return f.last, false, fmt.Errorf("%s is empty or not there any more, so the last allowance counts", f.path)
	case err != nil:
		return f.last, false, fmt.Errorf("reading the allowance: %w", err)
	case bytes.Equal(content, f.content):
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
