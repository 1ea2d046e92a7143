package kernel_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/yaml"
)

// apiServer implements as much of an API server as an agent needs: it lists one node and its pods, and accepts every
// write. It can hang like a server whose disk hangs: it accepts connections and requests, and answers none.
type apiServer struct {
	*httptest.Server
	lists map[string][]json.RawMessage // by resource name
	mu    sync.Mutex
	open  chan struct{} // closed while the server answers
	over  chan struct{} // closed when the test ends
	hung  atomic.Int64  // requests that had to wait
}

// newAPIServer starts a server that lists the pods of these manifests.
func newAPIServer(t *testing.T, milli int64, pods ...string) *apiServer {
	t.Helper()
	s := &apiServer{lists: map[string][]json.RawMessage{}, open: make(chan struct{}), over: make(chan struct{})}
	close(s.open)
	amount := fmt.Sprintf("{cpu: %dm, memory: 1Gi}", milli)
	s.add(t, "nodes", "{apiVersion: v1, kind: Node, metadata: {name: node, uid: node}, "+
		"status: {capacity: "+amount+", allocatable: "+amount+"}}")
	for _, pod := range pods {
		s.add(t, "pods", pod)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		close(s.over) // while the body of a request is unread, the server does not notice that the client is gone
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) add(t *testing.T, resource, text string) {
	t.Helper()
	object, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s.lists[resource] = append(s.lists[resource], object)
}

// hang stops all answers until the returned function is called. The waiting requests are answered then.
func (s *apiServer) hang() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make(chan struct{})
	s.open = open
	return sync.OnceFunc(func() { close(open) })
}

// answers waits until the server answers. It returns false if the client is gone.
func (s *apiServer) answers(r *http.Request) bool {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	select {
	case <-open:
		return true
	default:
	}
	s.hung.Add(1)
	select {
	case <-open:
		return true
	case <-r.Context().Done():
	case <-s.over:
	}
	return false
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	if !s.answers(r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	name := filepath.Base(r.URL.Path)
	items := s.lists[name]
	version := "v1"
	if strings.HasPrefix(r.URL.Path, "/apis/") {
		version = "waterline.io/v1alpha1"
	}
	kind := map[string]string{"pods": "Pod", "nodes": "Node", "colocationpolicies": "ColocationPolicy",
		"nodereports": "NodeReport"}[name]
	switch query := r.URL.Query(); {
	case r.Method != http.MethodGet:
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
	case query.Get("watch") == "":
		list, _ := json.Marshal(map[string]any{"kind": kind + "List", "apiVersion": version,
			"metadata": map[string]string{"resourceVersion": "1"}, "items": items})
		_, _ = w.Write(list)
	default:
		if query.Get("sendInitialEvents") == "true" {
			for _, item := range items {
				fmt.Fprintf(w, "{\"type\": \"ADDED\", \"object\": %s}\n", item)
			}
			fmt.Fprintf(w, "{\"type\": \"BOOKMARK\", \"object\": {\"kind\": %q, \"apiVersion\": %q, "+
				"\"metadata\": {\"resourceVersion\": \"1\", \"annotations\": {\"k8s.io/initial-events-end\": \"true\"}}}}\n",
				kind, version)
		}
		w.(http.Flusher).Flush()
		select { // no object ever changes
		case <-r.Context().Done():
		case <-s.over:
		}
	}
}

// kubeconfig writes the configuration with which an agent finds the server.
func (s *apiServer) kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, "+
		"context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}", s.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
