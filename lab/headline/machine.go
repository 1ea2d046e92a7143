package headline

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/waterline-io/waterline/lab/dataset"
)

// FindMachine reads the traces below a directory until it finds the machine with this name, with or without the
// name of its file in front. With "" it returns the first machine with a whole day. The error is fs.ErrNotExist
// if there is none.
func FindMachine(root, name string) (dataset.Machine, error) {
	for _, d := range dataset.All() {
		files, err := d.Files(root)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return dataset.Machine{}, err
		}
		for _, file := range files {
			machines, err := d.Read(file)
			if err != nil {
				return dataset.Machine{}, err
			}
			for _, m := range machines {
				if hasName(&m, name) {
					return m, nil
				}
			}
		}
	}
	if name == "" {
		return dataset.Machine{}, fmt.Errorf("no trace below %s has a machine with a whole day: %w", root, fs.ErrNotExist)
	}
	return dataset.Machine{}, fmt.Errorf("no trace below %s has a machine %s: %w", root, name, fs.ErrNotExist)
}

func hasName(m *dataset.Machine, name string) bool {
	if name == "" {
		_, err := m.Day(1)
		return err == nil
	}
	return m.Name == name || strings.HasSuffix(m.Name, "/"+name)
}
