package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

func round(i int64) *node.Round { return &node.Round{Node: model.Node{Capacity: model.Amount{CPU: i}}} }

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
	for i := range int64(30) {
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
	if bad != 0 || len(have) < 4 || have[len(have)-1] != 29 {
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
