// Package oci runs an OCI registry for tests.
package oci

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/poll"
)

// Program is the registry of Debian's package of that name.
const Program = "docker-registry"

// Registry is a registry without TLS. It ends with the test.
type Registry struct {
	Address string // 127.0.0.1:PORT, where clients expect no TLS
	config  string
}

// Start starts a registry.
func Start(t testing.TB) *Registry {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Registry{listener.Addr().String(), filepath.Join(t.TempDir(), "config.yaml")}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	content := fmt.Sprintf("{version: 0.1, log: {level: error}, http: {addr: %q}, "+
		"storage: {filesystem: {rootdirectory: %s}}}\n", r.Address, t.TempDir())
	if err := os.WriteFile(r.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	end := r.Serve(t, exec.CommandContext(ctx, Program, r.Args()...))
	t.Cleanup(func() { stop(); end() })
	answers := func() bool {
		answer, err := http.Get("http://" + r.Address + "/v2/")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}
	if !poll.Until(time.Minute, 10*time.Millisecond, answers) {
		t.Fatal("the registry does not answer")
	}
	return r
}

// Args returns the arguments of a process that serves the same images at the same address, as in another network
// namespace.
func (r *Registry) Args() []string { return []string{"serve", r.config} }

// Serve starts a process of the registry, and returns the function that waits for its end.
func (r *Registry) Serve(t testing.TB, c *exec.Cmd) (end func()) {
	t.Helper()
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = c.Wait()
		if t.Failed() {
			t.Logf("log of the registry: %s", &log)
		}
	}
}
