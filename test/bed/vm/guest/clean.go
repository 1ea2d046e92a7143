package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// removeCgroups removes everything below a cgroup that has no processes left, except the [quotaGroup], and returns the
// names of the topmost.
func removeCgroups(root string) ([]string, error) {
	var dirs, top []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == root {
			return err
		}
		if path == filepath.Join(root, quotaGroup) {
			return fs.SkipDir
		}
		dirs = append(dirs, path)
		if name := strings.TrimPrefix(path, root+"/"); !strings.Contains(name, "/") {
			top = append(top, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing cgroups: %w", err)
	}
	var errs []error
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil {
			errs = append(errs, fmt.Errorf("removing a cgroup: %w", err))
		}
	}
	return top, errors.Join(errs...)
}
