package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
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
	t.Run("scripts", func(t *testing.T) { // in parallel: the servers must outlive them
		testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true, Setup: func(env *testscript.Env) error {
			env.Setenv("AGENT", agent.Listener.Addr().String())
			env.Setenv("OLD_AGENT", old.Listener.Addr().String())
			env.Setenv("CLUSTER", cluster.URL)
			return nil
		}})
	})
}
