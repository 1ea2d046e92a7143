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

// apiServer is as much of an API server as an agent needs: it tells of one node and its pods, takes every write, and can hang,
// as one does whose disk does: it accepts connections and requests, and answers none.
type apiServer struct {
	*httptest.Server
	lists map[string][]json.RawMessage // by the name of the resource
	mu    sync.Mutex
	open  chan struct{} // closed while it answers
	over  chan struct{} // closed when the test is
	hung  atomic.Int64  // requests that had to wait
}

// newAPIServer starts one that tells of these pods, of which it is given the manifests.
func newAPIServer(t *testing.T, milli int64, pods ...string) *apiServer {
	t.Helper()
	s := &apiServer{lists: map[string][]json.RawMessage{}, open: make(chan struct{}), over: make(chan struct{})}
	close(s.open)
	amount := fmt.Sprintf("{cpu: %dm, memory: 1Gi}", milli)
	s.add(t, "nodes", "{apiVersion: v1, kind: Node, metadata: {name: node, uid: node}, status: {capacity: "+amount+", allocatable: "+amount+"}}")
	for _, pod := range pods {
		s.add(t, "pods", pod)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		close(s.over) // that a client is gone is not seen while its request has a body that nobody reads
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

// hang lets it answer nothing any more, until the function that is returned is called: then what waits is answered too.
func (s *apiServer) hang() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make(chan struct{})
	s.open = open
	return sync.OnceFunc(func() { close(open) })
}

// answers waits until it answers; false: whoever asked is gone.
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
			fmt.Fprintf(w, "{\"type\": \"BOOKMARK\", \"object\": {\"kind\": %q, \"apiVersion\": %q, \"metadata\": {\"resourceVersion\": \"1\", \"annotations\": {\"k8s.io/initial-events-end\": \"true\"}}}}\n", kind, version)
		}
		w.(http.Flusher).Flush()
		select { // nothing ever changes
		case <-r.Context().Done():
		case <-s.over:
		}
	}
}

// kubeconfig writes a file by which an agent finds it.
func (s *apiServer) kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}", s.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
