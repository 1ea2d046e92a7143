package certs

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiServer keeps objects as an API server does: a name is given once, and an update of an older version is a conflict.
type apiServer struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]any // by path
	writes  int
	patches []string
	refuse  int // a status with which everything is answered; 0: none
}

func start(t *testing.T) (*apiServer, kubernetes.Interface) {
	t.Helper()
	s := &apiServer{objects: map[string]map[string]any{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{
			ContentType: "application/json", AcceptContentTypes: "application/json",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

func (s *apiServer) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.Header().Set("Content-Type", "application/json")
	if s.refuse != 0 {
		status(to, s.refuse, metav1.StatusReasonInternalError)
		return
	}
	at := r.URL.Path
	if r.Method == http.MethodPatch {
		s.patch(to, r)
		return
	}
	var sent map[string]any
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			status(to, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		meta := sent["metadata"].(map[string]any)
		if r.Method == http.MethodPost {
			at = path.Join(at, meta["name"].(string))
		}
		old, found := s.objects[at]
		switch {
		case found && r.Method == http.MethodPost:
			status(to, http.StatusConflict, metav1.StatusReasonAlreadyExists)
			return
		case !found && r.Method == http.MethodPut:
			status(to, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		case found && old["metadata"].(map[string]any)["resourceVersion"] != meta["resourceVersion"]:
			status(to, http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		s.version++
		s.writes++
		meta["resourceVersion"] = strconv.Itoa(s.version)
		s.objects[at] = sent
	}
	object, found := s.objects[at]
	if !found {
		status(to, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	json.NewEncoder(to).Encode(object)
}

// patch answers a strategic merge patch of a webhook configuration. What it does not mention stays, also what no type
// of this test knows.
func (s *apiServer) patch(to http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	old, found := s.objects[r.URL.Path]
	if err != nil || !found || r.Header.Get("Content-Type") != string(types.StrategicMergePatchType) {
		status(to, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	var sent struct {
		Metadata struct{ ResourceVersion string }
	}
	before, err := json.Marshal(old)
	after, bad := strategicpatch.StrategicMergePatch(before, body, admissionv1.MutatingWebhookConfiguration{})
	var next map[string]any
	if err := errors.Join(err, bad, json.Unmarshal(body, &sent), json.Unmarshal(after, &next)); err != nil {
		status(to, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if sent.Metadata.ResourceVersion != old["metadata"].(map[string]any)["resourceVersion"] {
		status(to, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}
	s.version++
	s.writes++
	s.patches = append(s.patches, string(body))
	next["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
	s.objects[r.URL.Path] = next
	json.NewEncoder(to).Encode(next)
}

func status(to http.ResponseWriter, code int, reason metav1.StatusReason) {
	to.WriteHeader(code)
	json.NewEncoder(to).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
		Reason: reason,
	})
}
