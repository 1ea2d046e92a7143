package attempts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/test/attempts"
)

// TestRecord checks the lines of an attempt that failed and of one that passed.
func TestRecord(t *testing.T) {
	name := filepath.Join(t.TempDir(), "attempts.jsonl")
	t.Setenv("WATERLINE_ATTEMPTS", name)
	attempts.Record(t, 1, map[string]float64{"ms": 900}, "too slow")
	attempts.Record(t, 2, map[string]float64{"ms": 20}, "")
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"attempt":1,"passed":false,"test":"TestRecord","values":{"ms":900},"why":"too slow"}
{"attempt":2,"passed":true,"test":"TestRecord","values":{"ms":20},"why":""}
`
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
