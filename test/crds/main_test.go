package main

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSizes checks that kubectl apply can keep each definition in an annotation, which may have 256 KiB.
func TestSizes(t *testing.T) {
	files, err := filepath.Glob("../../deploy/chart/crds/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d definitions: %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.YAMLToJSON(content)
		if err != nil || len(text) > 128<<10 {
			t.Errorf("%s has %d bytes as JSON: %v", file, len(text), err)
		}
	}
}
