package pools

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestSecretStays has an API server that fails at times when the Secret of a pool is read again. The pool goes on with
// the content that it knows, and reads it again soon, but not in each round. A Secret that is gone, or that the manager
// may not read any more, counts no longer.
func TestSecretStays(t *testing.T) {
	code, asked, content := http.StatusOK, 0, "one"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		switch code {
		case http.StatusOK:
			_ = json.NewEncoder(w).Encode(corev1.Secret{Data: map[string][]byte{"principal": []byte(content)}})
		case http.StatusNotFound:
			fail(w, code, "NotFound")
		case http.StatusForbidden:
			fail(w, code, "Forbidden")
		default:
			fail(w, code, "InternalError")
		}
	}))
	defer s.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []int{http.StatusNotFound, http.StatusForbidden} {
		r := poolRound(t, "testdata/small.yaml", nil)
		r.k.c.o.Core = client.CoreV1().RESTClient()
		code, asked, content = http.StatusOK, 0, "one"
		round := func(after time.Duration, answer int, want string, requests int) {
			t.Helper()
			code, r.now = answer, r.now.Add(after)
			got, err := r.secretOf(t.Context(), "spec.yarn", "key")
			if string(got["principal"]) != want || (err == nil) != (want != "") || asked != requests {
				t.Errorf("an answer %d: %q, %v, %d requests; want %q, %d", answer, got, err, asked, want, requests)
			}
		}
		round(0, http.StatusInternalServerError, "", 1) // it was never read
		round(0, http.StatusOK, "one", 2)
		round(secretInterval, http.StatusInternalServerError, "one", 3)
		round(secretRetry/2, http.StatusInternalServerError, "one", 3)
		round(secretRetry/2, http.StatusInternalServerError, "one", 4)
		content = "two"
		round(secretRetry, http.StatusOK, "two", 5)
		round(secretRetry, http.StatusOK, "two", 5)
		round(secretInterval, gone, "", 6)
		round(time.Second, http.StatusInternalServerError, "", 7)
		round(time.Second, http.StatusOK, "two", 8)
	}
}
