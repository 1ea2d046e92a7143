package pools

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// fakeAPI answers with some objects, by path, and keeps what is changed. It knows no object that is changed.
type fakeAPI struct {
	t       *testing.T
	objects map[string]any
	mu      sync.Mutex
	changes map[string]string // body by method and path
	asked   []string          // paths of all requests
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1"), "/apis")
	w.Header().Set("Content-Type", "application/json")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, path)
	o, found := f.objects[path]
	switch {
	case r.Method != http.MethodGet:
		if _, there := f.objects[path+"/"+nameIn(body)]; r.Method == http.MethodPost && there {
			fail(w, http.StatusConflict, "AlreadyExists")
			return
		}
		f.changes[r.Method+" "+path+" force="+r.URL.Query().Get("force")] = string(body)
		_, _ = io.WriteString(w, "{}")
	case !found:
		fail(w, http.StatusNotFound, "NotFound")
	default:
		if err := json.NewEncoder(w).Encode(o); err != nil {
			f.t.Error(err)
		}
	}
}

func nameIn(body []byte) string {
	var o struct{ Metadata metav1.ObjectMeta }
	_ = json.Unmarshal(body, &o)
	return o.Metadata.Name
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason,
	})
}

// apiRound returns a round of the small pool with an API of these objects.
func apiRound(t *testing.T, objects map[string]any) (*round, *fakeAPI) {
	t.Helper()
	f := &fakeAPI{t: t, objects: objects, changes: map[string]string{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	config := &rest.Config{Host: s.URL, QPS: -1}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r := poolRound(t, "testdata/small.yaml", nil)
	o := &r.k.c.o
	o.Core, o.Policy = client.CoreV1().RESTClient(), client.PolicyV1().RESTClient()
	if o.Custom, err = kube.NewCustomClient(config); err != nil {
		t.Fatal(err)
	}
	return r, f
}

// owned returns an object whose controller is of a kind and has a UID; "": it has none.
func owned(kind, uid string) map[string]any {
	meta := map[string]any{"namespace": "yarn", "name": "x", "uid": "own"}
	if uid != "" {
		meta["ownerReferences"] = []any{map[string]any{
			"apiVersion": "v1", "kind": kind, "name": "other", "uid": uid, "controller": true,
		}}
	}
	return map[string]any{"metadata": meta}
}

// TestTaken has objects of the names that a pool needs. Those of others are left alone, with a condition, and no pod is
// made beside them. The pool's own are changed, and only while they are the same objects.
func TestTaken(t *testing.T) {
	p := poolRound(t, "testdata/small.yaml", nil).p
	service := "/namespaces/" + p.Namespace + "/services/" + p.Name
	for about, c := range map[string]struct {
		have  any // the Service; nil: none
		taken string
		force string
	}{
		"none":                {nil, "", "false"},
		"the pool's":          {owned("WorkerPool", string(p.UID)), "", "true"},
		"nobody's":            {owned("", ""), "nobody controls it", ""},
		"another pool's":      {owned("WorkerPool", "another"), "WorkerPool other controls it", ""},
		"somebody else's":     {owned("Deployment", "d"), "Deployment other controls it", ""},
		"of a pool of before": {owned("WorkerPool", "before"), "is left alone", ""},
	} {
		objects := map[string]any{}
		if c.have != nil {
			objects[service] = c.have
		}
		r, f := apiRound(t, objects)
		r.prepare(t.Context())
		body, changed := f.changes["PATCH "+service+" force="+c.force]
		if (c.taken == "") != changed || c.taken != "" && len(f.changes) > 0 {
			t.Errorf("%s: changes %q", about, slices.Collect(maps.Keys(f.changes)))
		}
		if pinned := strings.Contains(body, `"uid":"own"`); pinned != (c.force == "true") {
			t.Errorf("%s: %s", about, body)
		}
		if problem := r.t.all[v1alpha1.ConditionStepsFailed]; c.taken != "" && (len(problem.errs) != 1 ||
			!strings.Contains(problem.message(), c.taken)) {
			t.Errorf("%s: %+v", about, problem)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "w"}}
		if err := r.k.createPod(t.Context(), p, pod); (err == nil) != (c.taken == "") {
			t.Errorf("%s: a pod is made: %v", about, err)
		}
	}
}

// TestPodTaken has a pod of the name of a worker. One of another pool is an error that says so.
func TestPodTaken(t *testing.T) {
	p := poolRound(t, "testdata/small.yaml", nil).p
	for uid, want := range map[string]string{string(p.UID): "", "another": "WorkerPool other controls it", "": "nobody"} {
		r, _ := apiRound(t, map[string]any{"/namespaces/" + p.Namespace + "/pods/w": owned("WorkerPool", uid)})
		err := r.k.createPod(t.Context(), p, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "w"}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", uid, err, want)
		}
	}
}

// TestForsaken has a deleted pool in a namespace in which the manager may do nothing any more. If the namespace is
// being deleted, the pool goes with its last pod.
func TestForsaken(t *testing.T) {
	p := poolRound(t, "testdata/small.yaml", nil).p
	now := metav1.NewTime(time.Now())
	p.DeletionTimestamp, p.Finalizers = &now, []string{v1alpha1.FinalizerPool, "other"}
	ending := map[string]any{"metadata": map[string]any{"name": p.Namespace, "deletionTimestamp": now}}
	pods := "/namespaces/" + p.Namespace + "/pods"
	list := func(uid string) any {
		return map[string]any{"apiVersion": "v1", "kind": "PodList", "items": []any{owned("WorkerPool", uid)}}
	}
	for about, c := range map[string]struct {
		objects map[string]any
		gone    bool
	}{
		"the namespace stays": {map[string]any{
			"/namespaces/" + p.Namespace: map[string]any{"metadata": map[string]any{"name": p.Namespace}}, pods: list("x"),
		}, false},
		"a pod is left":     {map[string]any{"/namespaces/" + p.Namespace: ending, pods: list(string(p.UID))}, false},
		"its pods are gone": {map[string]any{"/namespaces/" + p.Namespace: ending, pods: list("x")}, true},
	} {
		r, f := apiRound(t, c.objects)
		if err := r.k.releaseWithNamespace(t.Context(), p); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		path := fmt.Sprintf("PATCH /%s/namespaces/%s/workerpools/%s force=", v1alpha1.GroupVersion, p.Namespace, p.Name)
		if body, gone := f.changes[path]; gone != c.gone || gone && !strings.Contains(body, `"finalizers":["other"]`) {
			t.Errorf("%s: %q", about, f.changes)
		}
	}
}
