package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
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

// TestStarvedNode checks that doctor cluster and explain node name the node's own service that waits, and the online
// pod because of which it does. What batch makes wait is no note of a doctor: batch makes room.
func TestStarvedNode(t *testing.T) {
	n := &serve.NodeExplanation{Slack: &model.Slack{}, Starved: []model.Reason{
		{Code: model.SystemHarmed, Key: "service", Text: "kernel threads", Fix: "because of batch, which makes room"},
		{Code: model.SystemStarved, Key: "service", Text: "kubelet", Fix: "because of online pods, of which shop/web uses " +
			"most CPU, and nothing of Waterline's helps; limit that pod"},
	}}
	var out bytes.Buffer
	d := doctor{out: &out, output: &output{}}
	if d.fails("worker-7", n); d.result() != nil {
		t.Error("it is no failure of Waterline")
	}
	if got := out.String(); !strings.Contains(got, "node worker-7: kubelet waited for CPUs") ||
		!strings.Contains(got, "shop/web uses most CPU") || !strings.Contains(got, "limit that pod") ||
		strings.Contains(got, "kernel threads") {
		t.Errorf("doctor:\n%s", got)
	}
	out.Reset()
	if err := printNode(&out, "worker-7", n); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, `SystemHarmed service: "kernel threads": because of batch`) ||
		!strings.Contains(got, `SystemStarved service: "kubelet": because of online pods, of which shop/web`) {
		t.Errorf("explain:\n%s", got)
	}
}
