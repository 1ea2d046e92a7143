package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// decided is what experiments want to know of one round of the agent's, of which it keeps a journal.
type decided struct {
	Node struct {
		Load      *struct{ Clock time.Duration }
		Reclaimed *model.Reclaimed
	}
	Plan struct{ Blame *model.Blame }
}

// eachRound reads the journal in a run directory of the agent, oldest round first.
func eachRound(dir string, do func(*decided)) error {
	for _, name := range []string{"journal.1.jsonl", "journal.jsonl"} {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(parseRounds(f, do), f.Close())
		}
		if err != nil {
			return fmt.Errorf("reading the agent's journal: %w", err)
		}
	}
	return nil
}

// parseRounds reads a journal. Its last line may be half written.
func parseRounds(r io.Reader, do func(*decided)) error {
	for lines := json.NewDecoder(r); ; {
		var next decided
		err := lines.Decode(&next)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		do(&next)
	}
}
