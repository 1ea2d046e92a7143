package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestDashboardProxy checks that the code of a run stands for the user's token there and nowhere else, and that a
// request under another name is refused.
func TestDashboardProxy(t *testing.T) {
	remote := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	defer remote.Close()
	b := &board{
		host: "127.0.0.1:8765", remote: remote.Listener.Addr().String(), code: "code",
		token: func() (string, error) { return "Bearer secret", nil },
	}
	for _, c := range []struct{ host, sent, want string }{
		{b.host, "Bearer code", "Bearer secret"}, {b.host, "Bearer guess", "Bearer guess"}, {b.host, "", ""},
		{"evil.example:8765", "Bearer code", "This address is 127.0.0.1:8765 only.\n"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/me", nil)
		r.Host = c.host
		r.Header.Set("Authorization", c.sent)
		w := httptest.NewRecorder()
		if b.handler().ServeHTTP(w, r); w.Body.String() != c.want {
			t.Errorf("%s at %s: %q, want %q", c.sent, c.host, w.Body, c.want)
		}
	}
	b.code = "" // as without a token
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = b.host
	r.Header.Set("Authorization", "Bearer ")
	w := httptest.NewRecorder()
	if b.handler().ServeHTTP(w, r); strings.Contains(w.Body.String(), "secret") {
		t.Error("an empty code stands for the token")
	}
}

// TestDashboardToken checks which credentials of a kubeconfig have a token.
func TestDashboardToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "echo", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Args: []string{`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"made"}}`},
	}
	for name, c := range map[string]struct {
		config rest.Config
		want   string
	}{
		"token":       {rest.Config{BearerToken: "plain"}, "Bearer plain"},
		"file":        {rest.Config{BearerTokenFile: file}, "Bearer from-file"},
		"program":     {rest.Config{ExecProvider: plugin}, "Bearer made"},
		"certificate": {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: "none", KeyFile: "none"}}, ""},
		"password":    {rest.Config{Username: "a", Password: "b"}, ""},
	} {
		get, err := tokenOf(&c.config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if get == nil {
			if c.want != "" {
				t.Errorf("%s: no token", name)
			}
			continue
		}
		if header, err := get(); header != c.want {
			t.Errorf("%s: %q, want %q: %v", name, header, c.want, err)
		}
	}
}
