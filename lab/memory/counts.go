package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/agentrun"
)

// counts is the work done and the memory events so far.
type counts struct {
	answered      float64 // requests
	waited        float64 // requests that waited for the disk
	worked        float64 // KiB that batch read and took
	online, batch events
	reclaimed     int64 // bytes that memory.reclaim by the agent freed
	used          int64 // bytes of batch now; not a count
}

func (c counts) since(before counts) counts {
	return counts{
		answered: c.answered - before.answered, waited: c.waited - before.waited, worked: c.worked - before.worked,
		online: c.online.since(before.online), batch: c.batch.since(before.batch),
		reclaimed: c.reclaimed - before.reclaimed, used: c.used,
	}
}

// events is what happened to the memory of a cgroup since it was made.
type events struct {
	refaults int64 // pages of files that were read again after they had been reclaimed
	low      int64 // times that memory was reclaimed below memory.low
	high     int64 // times that processes were throttled at memory.high
	max      int64 // times that the cgroup was at memory.max
	killed   int64 // processes
}

// readEvents reads the events of the cgroup in a directory.
func readEvents(dir string) (events, error) {
	text, err1 := os.ReadFile(filepath.Join(dir, "memory.events"))
	stat, err2 := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err := errors.Join(err1, err2); err != nil {
		return events{}, fmt.Errorf("reading memory events: %w", err)
	}
	return parseEvents(string(text), string(stat))
}

// parseEvents reads memory.events and memory.stat.
func parseEvents(text, stat string) (e events, err error) {
	for _, f := range []struct {
		text, key string
		to        *int64
	}{
		{text, "low", &e.low}, {text, "high", &e.high}, {text, "max", &e.max}, {text, "oom_kill", &e.killed},
		{stat, "workingset_refault_file", &e.refaults},
	} {
		_, rest, found := strings.Cut("\n"+f.text, "\n"+f.key+" ")
		number, _, _ := strings.Cut(rest, "\n")
		if *f.to, err = strconv.ParseInt(number, 10, 64); err != nil || !found {
			return events{}, fmt.Errorf("reading memory events: there is no count of %s in %q", f.key, f.text)
		}
	}
	return e, nil
}

func (e events) since(before events) events {
	return events{
		refaults: e.refaults - before.refaults, low: e.low - before.low, high: e.high - before.high, max: e.max - before.max,
		killed: e.killed - before.killed,
	}
}

// readBytes reads a file with an amount of memory; [model.Unlimited]: no limit.
func readBytes(file string) (int64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("reading an amount of memory: %w", err)
	}
	raw, err := cgroup.Parse(cgroup.V2, model.MemoryMax, content, cgroup.Raw{})
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", file, err)
	}
	return raw.Number, nil
}

// reclaimed sums up the bytes that the agent reclaimed from batch pods, by the journal in its run directory.
func reclaimed(runDir string) (sum int64, err error) {
	err = agentrun.EachRound(runDir, func(r *node.Round) {
		if r.Node.Reclaimed != nil {
			sum += r.Node.Reclaimed.Freed
		}
	})
	return sum, err
}
