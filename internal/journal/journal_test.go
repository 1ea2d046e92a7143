package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

func round(i int64) *node.Round {
	return &node.Round{Node: model.Node{Now: time.Unix(i, 0), Capacity: model.Amount{CPU: i}}}
}

// rounds returns what a journal has, and how many lines could not be read.
func rounds(dir string) (have []node.Round, bad int) {
	for r, err := range Read(dir) {
		if err != nil {
			bad++
			continue
		}
		have = append(have, r)
	}
	return have, bad
}

// numbers returns which rounds those are.
func numbers(dir string) (have []int64, bad int) {
	all, bad := rounds(dir)
	for i := range all {
		have = append(have, all[i].Node.Capacity.CPU)
	}
	return have, bad
}

// TestJournal checks that a journal keeps the last rounds, in order, within its size, and goes on where the last
// process was killed.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(round(0)); err != nil {
		t.Fatal(err)
	}
	one := j.size
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, current), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"Node": cut short` + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = Open(dir, 10*one); err != nil {
		t.Fatal(err)
	}
	if have, bad := numbers(dir); len(have) != 1 || bad != 1 {
		t.Errorf("%d bad lines beside the rounds %d", bad, have)
	}
	for i := range int64(300) {
		if err := j.Append(round(i)); err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, name := range []string{previous, current} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
				size += info.Size()
			}
		}
		if size > 11*one {
			t.Fatalf("%d bytes after %d rounds of %d", size, i, one)
		}
	}
	have, bad := numbers(dir)
	if bad != 0 || len(have) < 4 || have[len(have)-1] != 299 {
		t.Fatalf("%d bad lines beside the rounds %d", bad, have)
	}
	for i := range have[1:] {
		if have[i+1] != have[i]+1 {
			t.Errorf("rounds %d", have)
		}
	}
}

// TestJournalNoSpace checks that what could not be written says so and leaves what was there.
func TestJournalNoSpace(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(round(1)); err != nil {
		t.Fatal(err)
	}
	disk := j.file
	if j.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(round(2)); err == nil {
		t.Error("written to a full disk")
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	j.file = disk
	if err := j.Append(round(3)); err != nil {
		t.Error(err)
	}
	if have, bad := numbers(dir); bad != 0 || len(have) != 2 || have[1] != 3 {
		t.Errorf("%d bad lines beside the rounds %d", bad, have)
	}
}

// TestLineErrors checks that a line that cannot be used is reported with its place and the reason, and that the lines
// before and after it are used.
func TestLineErrors(t *testing.T) {
	const whole = `{"Node":{"Now":"2026-01-01T12:00:00Z"}}`
	for name, c := range map[string]struct{ line, want string }{
		"cut short":       {whole[:20], "j.jsonl:2: not a round of a journal, or cut short: "},
		"garbage":         {"\x00\x01 not JSON", "j.jsonl:2: not a round of a journal, or cut short: "},
		"another file":    {`{"kind": "Pod"}`, "j.jsonl:2: not a round of a journal: it has no time"},
		"a null pod":      {`{"Node":{"Now":"2026-01-01T12:00:00Z","Pods":[null]}}`, "j.jsonl:2: not a round of a journal"},
		"a newer version": {`{"Format":3,"Node":{}}`, "j.jsonl:2: format 3 is of a newer version"},
	} {
		t.Run(name, func(t *testing.T) {
			var read int
			var failed []string
			text := strings.NewReader(whole + "\n" + c.line + "\n" + whole)
			for _, err := range ReadFrom(text, "j.jsonl") {
				if read++; err != nil {
					failed = append(failed, err.Error())
				}
			}
			if read != 3 || len(failed) != 1 || !strings.HasPrefix(failed[0], c.want) {
				t.Errorf("%d lines, of which %q; want %s", read, failed, c.want)
			}
		})
	}
}

// TestFind checks that each run directory below a directory is one journal, and any other file one by itself.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"a/journal.1.jsonl", "a/journal.jsonl", "b/journal.jsonl", "c/journal.1.jsonl", "c/worker-3.jsonl", "c/state.json",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		".":                 "a/journal.1.jsonl+a/journal.jsonl b/journal.jsonl c/journal.1.jsonl c/worker-3.jsonl",
		"a":                 "a/journal.1.jsonl+a/journal.jsonl",
		"a/journal.jsonl":   "a/journal.1.jsonl+a/journal.jsonl",
		"c/worker-3.jsonl":  "c/worker-3.jsonl",
		"nowhere/at/all":    "",
		"c/journal.1.jsonl": "c/journal.1.jsonl",
	} {
		found, err := Find(filepath.Join(dir, path))
		var texts []string
		for _, files := range found {
			texts = append(texts, strings.Join(files, "+"))
		}
		if got := strings.ReplaceAll(strings.Join(texts, " "), dir+"/", ""); got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
}

// TestRemoved: a journal that somebody removed, or whose directory was away when it turned, goes on.
func TestRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	away := dir + "-away"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := Open(dir, 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	i := int64(0)
	fill := func() (failed int) {
		for range 200 {
			if i++; j.Append(round(i)) != nil {
				failed++
			}
		}
		return failed
	}
	fill()
	if err := os.Remove(filepath.Join(dir, current)); err != nil {
		t.Fatal(err)
	}
	if failed := fill(); failed > 0 {
		t.Errorf("without its file, the journal lacks %d rounds", failed)
	}
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	if failed := fill(); failed == 0 {
		t.Error("nothing failed without a directory")
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	if failed := fill(); failed > 0 {
		t.Errorf("after it came back, the journal lacks %d rounds", failed)
	}
	if have, _ := numbers(dir); len(have) == 0 || have[len(have)-1] != i {
		t.Errorf("the last rounds are %d, want %d", have, i)
	}
}
