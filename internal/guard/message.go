package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/waterline-io/waterline/internal/guard/guardlog"
)

// message is what stays of the records when the pod is gone: the termination message of the guard's container. It is
// written anew with each record, so it is there too if the guard is killed.
type message struct {
	path string
	all  []guardlog.Record // the last one of each container, the newest first
}

// add adds a record.
func (m *message) add(r guardlog.Record) error {
	brief, is := r.Brief()
	if !is {
		return nil
	}
	m.all = slices.DeleteFunc(m.all, func(old guardlog.Record) bool { return old.Container == brief.Container })
	m.all = slices.Insert(m.all, 0, brief)
	m.all = m.all[:min(len(m.all), kept)]
	f, err := os.OpenFile(m.path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // this is no container of a pod
	}
	if err != nil {
		return fmt.Errorf("opening the termination message: %w", err)
	}
	// It is never empty between the two, and what is left of an older one is no line.
	text := guardlog.WriteMessage(m.all)
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Truncate(int64(len(text))), f.Close())
}
