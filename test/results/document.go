package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// document holds the figures of one measurement.
type document struct {
	Name    string             `json:"name"`
	When    time.Time          `json:"when"`
	Machine string             `json:"machine"`
	Commit  string             `json:"commit,omitempty"`
	Command string             `json:"command,omitempty"` // empty: make bench
	Metrics map[string]float64 `json:"metrics"`
}

// command returns the command that measured the document.
func (d document) command() string {
	if d.Command != "" {
		return d.Command
	}
	return "make bench"
}

// readAll reads a file with a list of documents.
func readAll(file string) ([]document, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var docs []document
	if err := json.Unmarshal(content, &docs); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return docs, nil
}

// readBench reads the documents of make bench, one a file. Their names are those of the files: an experiment and a
// bench can have the same name. A folder that does not exist has none.
func readBench(dir string) ([]document, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var docs []document
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var d document
		if err := json.Unmarshal(content, &d); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if d.When.IsZero() || len(d.Metrics) == 0 {
			return nil, fmt.Errorf("reading %s: no date or no metrics", file)
		}
		d.Name = strings.TrimSuffix(filepath.Base(file), ".json")
		docs = append(docs, d)
	}
	return docs, nil
}

// update returns the documents with each newer one in the place of that of the same name.
func update(docs, newer []document) []document {
	docs = slices.Clone(docs)
	for _, d := range newer {
		switch i := slices.IndexFunc(docs, func(old document) bool { return old.Name == d.Name }); {
		case i < 0:
			docs = append(docs, d)
		case d.When.After(docs[i].When):
			docs[i] = d
		}
	}
	return docs
}

// writeAll writes documents to a file, if that changes it.
func writeAll(file string, docs []document) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(docs); err != nil {
		return fmt.Errorf("encoding the documents: %w", err)
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, b.Bytes()) {
		return nil
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
