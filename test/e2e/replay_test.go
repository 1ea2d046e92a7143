package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

// kept is the directory of the journals that the agents of all tests left. It is set once, before any test.
var kept string

// keepJournal moves the journal of an agent that has stopped to those that are replayed when all tests have ended.
func keepJournal(t testing.TB, m machine, runDir string) {
	dir := filepath.Join(kept, t.Name())
	for _, name := range journal.Files() {
		content, err := m.readFile(filepath.Join(runDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), content, 0o600),
				os.Remove(filepath.Join(runDir, name)))
		}
		if err != nil {
			t.Errorf("keeping the journal: %v", err)
		}
	}
}

// replayKept replays all rounds of all tests. Each must be decided as it was.
func replayKept() error {
	if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) {
		return nil // no agent ran
	}
	out, err := program("waterline", "replay", kept)
	if err != nil {
		return fmt.Errorf("replaying the journals of all tests: %w: %s", err, out)
	}
	fmt.Printf("journals of all tests: %s", out)
	return nil
}

// TestNodeReplay replays the journal of a node whose agent has all features enabled: one pod has a weight, one has its
// own CPUs, one works in bursts under a limit, and two batch pods use the rest. The replay must decide every recorded
// round in the same way, in full form after ten minutes.
func TestNodeReplay(t *testing.T) {
	oneNode(t, "what a round is given and decides is recorded alike")
	n := install(t)
	n.policy(`{"mode": "Enforce", "cpu": {"waterline": "100%", "method": "Realtime", "suppression": "Arithmetic"},` +
		`"memory": {"waterline": "90%", "method": "Realtime"},` +
		`"protect": {"burst": true, "memory": true, "interference": true, "eviction": {}}}`)
	n.run("weighted", `waterline.io/cpu-share: "20480"`, "requests: {cpu: 50m}", false)
	n.cpuPod("alone", "exclusive", "1")
	const fits = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.2; done"
	n.loaded("fits", "", fits, "requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 200m}")
	for _, name := range []string{"job-1", "job-2"} {
		n.loaded(name, "BE", "while :; do :; done", "")
	}
	least := 20 // rounds; there is one a second
	if soak {
		least = 600
	}
	var dir string
	eventually(t, fmt.Sprintf("%d rounds, some of them with limits of batch and exclusive CPUs", least),
		func() (bool, string) {
			dir = n.copyJournal(t)
			rounds, suppressed, exclusive, bursts := replayed(t, dir)
			return rounds >= least && suppressed && exclusive,
				fmt.Sprintf("%d rounds; suppressed %v, exclusive %v, bursts %v", rounds, suppressed, exclusive, bursts)
		})
	if out, err := program("waterline", "replay", dir); err != nil {
		t.Errorf("waterline replay: %v: %s", err, out)
	}
	shows(t, "explain pod weighted --journal "+dir, "recorded rounds from", "written by Waterline",
		"requested=20480shares")
	shows(t, "explain pod weighted --at "+time.Now().UTC().Format(time.RFC3339), "by the round of ",
		"requested=20480shares")
	shows(t, "explain pod job-1", "batch, tier batch, by its label waterline.io/qos", "In other words")
	shows(t, "explain node "+n.name, "governed by ", "PolicyGoverns priority=")
	n.checkExplained()
	shows(t, "top pods "+n.name, "default/job-1", "BE batch")
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	shows(t, "support-bundle --node "+n.name+" --file "+bundle, "missing: nodes/\x00")
}

// copyJournal copies the journal of the node's agent, and returns the directory.
func (n *node) copyJournal(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"journal.1.jsonl", "journal.jsonl"} {
		content, err := n.readFile(filepath.Join(n.runDir(), name))
		if err != nil && name == "journal.1.jsonl" {
			continue // the journal was not full yet
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// replayed replays a journal, which must decide every round in the same way, and says what happens in it.
func replayed(t *testing.T, dir string) (rounds int, suppressed, exclusive, bursts bool) {
	t.Helper()
	unreadable := 0
	for r, err := range journal.Read(dir) {
		if err != nil {
			if unreadable++; unreadable > 1 { // the agent was writing the last line
				t.Errorf("%v", err)
			}
			continue
		}
		rounds++
		suppressed = suppressed || r.Plan.Suppress != nil && len(r.Plan.Suppress.Parts) > 0
		exclusive = exclusive || r.Plan.CPUs != nil && !r.Plan.CPUs.Exclusive.Empty()
		for i := range r.Plan.Settings {
			bursts = bursts || r.Plan.Settings[i].Knob == model.Burst
		}
		differences, err := journal.Replay(&r)
		if err != nil || len(differences) > 0 {
			t.Fatalf("the round of %s: %v, %+v", r.Node.Now, err, differences)
		}
	}
	return rounds, suppressed, exclusive, bursts
}
