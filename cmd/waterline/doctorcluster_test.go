package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestAgentTroubles checks that doctor cluster names the value that helps an agent whose kubelet refuses it. The errors
// are those of the agent's own client with a self-signed certificate, without a right, and without an identity.
func TestAgentTroubles(t *testing.T) {
	status := http.StatusForbidden
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	trouble := func(client *http.Client) string {
		t.Helper()
		_, err := kube.ReadKubelet(t.Context(), client, server.URL+"/configz")
		if err == nil {
			t.Fatal("the kubelet answered")
		}
		return err.Error()
	}
	says := func(what, err string) string {
		var out bytes.Buffer
		d := doctor{out: &out, output: &output{}}
		d.fails("worker-7", &serve.NodeExplanation{Troubles: map[string]string{what: err}})
		if d.result() == nil {
			t.Errorf("a failing agent is no trouble: %s", out.String())
		}
		return out.String()
	}
	unknown, forbidden := trouble(&http.Client{}), trouble(server.Client())
	status = http.StatusUnauthorized
	for _, c := range []struct{ what, err, fix string }{
		{"kubelet", unknown, "agent.kubeletInsecureTLS=true"},
		{"kubelet", forbidden, "agent.kubeletProxy=true"},
		{"kubelet", trouble(server.Client()), "authentication.webhook.enabled: true"},
		{"report", unknown, "see the agent's log"},
	} {
		if got := says(c.what, c.err); !strings.Contains(got, c.fix) || !strings.Contains(got, "worker-7") {
			t.Errorf("operation %s, %s: want %q in:\n%s", c.what, c.err, c.fix, got)
		}
	}
}
