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
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"waterline": func() { os.Exit(run()) }, asPlugin: func() { os.Exit(run()) },
	})
}

// TestScripts runs the command as a user types it.
func TestScripts(t *testing.T) {
	recorded := t.TempDir()
	if err := recordJournals(recorded); err != nil {
		t.Fatal(err)
	}
	local := http.NewServeMux()
	local.HandleFunc("/", serveAgent)
	local.HandleFunc("/journal", func(w http.ResponseWriter, _ *http.Request) {
		_ = journal.Copy(w, filepath.Join(recorded, "recorded"))
	})
	agent := httptest.NewServer(local)
	defer agent.Close()
	old := httptest.NewServer(http.NotFoundHandler())
	defer old.Close()
	cluster := httptest.NewServer(http.HandlerFunc(serveCluster))
	defer cluster.Close()
	peers := httptest.NewServer(http.HandlerFunc(servePeers))
	defer peers.Close()
	rm := httptest.NewServer(http.HandlerFunc(serveRM))
	defer rm.Close()
	t.Run("scripts", func(t *testing.T) { // in parallel: the servers must outlive them
		testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true,
			Setup: func(env *testscript.Env) error {
				env.Setenv("AGENT", agent.Listener.Addr().String())
				env.Setenv("OLD_AGENT", old.Listener.Addr().String())
				env.Setenv("CLUSTER", cluster.URL)
				env.Setenv("PEERS", peers.URL)
				env.Setenv("RM", rm.URL)
				return recordJournals(env.WorkDir)
			}})
	})
}

// recordJournals records three seconds of a node with one weighted pod, in the directory recorded; in the directory
// altered the same with another weight in the plan of the second round; and in the directory left the same with a batch
// pod, whose eviction is requested in the second round, and which is gone in the third.
func recordJournals(work string) error {
	for name, change := range map[string]func(second int, r *node.Round){
		"recorded": func(int, *node.Round) {},
		"altered": func(second int, r *node.Round) {
			if second == 1 {
				r.Plan.Settings[1].Value = model.Number(7)
			}
		},
		"left": func(second int, r *node.Round) {
			if second == 1 {
				r.Plan.Evict = &model.Evictions{Request: &model.Eviction{
					UID: "b", Namespace: "shop", Name: "job", Reason: model.Reason{
						Code: model.MemoryExhausted, Operands: []model.Operand{{Name: "need", Value: 1 << 30, Unit: model.UnitBytes}},
					},
				}}
			}
		},
	} {
		dir := filepath.Join(work, name)
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
				Owned: []model.Owned{{
					File: model.File{Dir: "kubepods/burstable/poda", Knob: model.Shares},
					Ours: model.Number(4096), Theirs: model.Number(102),
				}},
				Pods: []*model.Pod{{
					UID: "a", APIUID: "a", Namespace: "shop", Name: "web-0", QoS: model.Burstable,
					Annotations: model.PodAnnotations{Shares: 4096},
				}},
			}
			if name == "left" && second < 2 {
				r.Node.Pods = append(r.Node.Pods, &model.Pod{
					UID: "b", APIUID: "b", Namespace: "shop", Name: "job", QoS: model.BestEffort, Class: model.ClassBE,
				})
			}
			round := r
			round.Plan, r.State = node.Decide(r.Node, r.Policy, r.State)
			change(second, &round)
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
