package headline

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
)

// FindMachine reads the traces below a directory until it finds the machine with this name, with or without the
// name of its file in front. With "" it returns the first machine with a whole day. The error is fs.ErrNotExist
// if there is none.
func FindMachine(root, name string) (trace.Machine, error) {
	for _, d := range dataset.All() {
		files, err := d.Files(root)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return trace.Machine{}, err
		}
		for _, file := range files {
			machines, err := d.Read(file)
			if err != nil {
				return trace.Machine{}, err
			}
			for _, m := range machines {
				if hasName(&m, name) {
					return m, nil
				}
			}
		}
	}
	if name == "" {
		return trace.Machine{}, fmt.Errorf("no trace below %s has a machine with a whole day: %w", root, fs.ErrNotExist)
	}
	return trace.Machine{}, fmt.Errorf("no trace below %s has a machine %s: %w", root, name, fs.ErrNotExist)
}

func hasName(m *trace.Machine, name string) bool {
	if name == "" {
		_, err := m.Day(1)
		return err == nil
	}
	return m.Name == name || strings.HasSuffix(m.Name, "/"+name)
}
