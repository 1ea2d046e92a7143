package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"waterline": func() { os.Exit(run()) }})
}

// TestScripts runs the command as a user types it.
func TestScripts(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(serveAgent))
	defer agent.Close()
	old := httptest.NewServer(http.NotFoundHandler())
	defer old.Close()
	cluster := httptest.NewServer(http.HandlerFunc(serveCluster))
	defer cluster.Close()
	rm := httptest.NewServer(http.HandlerFunc(serveRM))
	defer rm.Close()
	t.Run("scripts", func(t *testing.T) { // in parallel: the servers must outlive them
		testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true,
			Setup: func(env *testscript.Env) error {
				env.Setenv("AGENT", agent.Listener.Addr().String())
				env.Setenv("OLD_AGENT", old.Listener.Addr().String())
				env.Setenv("CLUSTER", cluster.URL)
				env.Setenv("RM", rm.URL)
				return recordJournals(env.WorkDir)
			}})
	})
}

// recordJournals records three seconds of a node with one weighted pod, in the directory recorded; and in the directory
// altered the same with another weight in the plan of the second round.
func recordJournals(work string) error {
	for _, altered := range []bool{false, true} {
		dir := filepath.Join(work, map[bool]string{false: "recorded", true: "altered"}[altered])
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		j, err := journal.Open(dir, 1<<20)
		if err != nil {
			return err
		}
		r := node.Round{Policy: fixture.Policy()}
		r.Policy.Mode = model.ModeEnforce
		for second := range 3 {
			r.Node = model.Node{
				Now: time.Date(2026, 1, 1, 12, 0, second, 0, time.UTC), PodsKnown: true, Allocatable: model.Amount{CPU: 4000},
				Tree: model.Tree{
					Guaranteed: "kubepods", Burstable: "kubepods/burstable", BestEffort: "kubepods/besteffort",
					Pods: map[string]model.PodGroup{"a": {Dir: "kubepods/burstable/poda", Inode: 1}},
				},
				Pods: []*model.Pod{{UID: "a", QoS: model.Burstable, Annotations: model.PodAnnotations{Shares: 4096}}},
			}
			round := r
			round.Plan, r.State = node.Decide(r.Node, r.Policy, r.State)
			if altered && second == 1 {
				round.Plan.Settings[1].Value = model.Number(7)
			}
			if err := j.Append(&round); err != nil {
				return err
			}
		}
		if err := j.Close(); err != nil {
			return err
		}
	}
	return nil
}
