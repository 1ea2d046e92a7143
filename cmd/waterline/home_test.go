package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// TestHome checks where agents and manager are looked for. A pod with their labels does not count, wherever it is.
func TestHome(t *testing.T) {
	const (
		policies = "/apis/waterline.io/v1alpha1/colocationpolicies waterline.io/namespace"
		binding  = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/waterline-agent "
		labelled = `{"kind":"ColocationPolicyList","apiVersion":"waterline.io/v1alpha1","items":[` +
			`{"metadata":{"name":"default","labels":{"waterline.io/namespace":"colocation"}}}]}`
		none  = `{"kind":"ColocationPolicyList","apiVersion":"waterline.io/v1alpha1","items":[]}`
		bound = `{"subjects":[{"kind":"ServiceAccount","name":"waterline-agent","namespace":"infra"}]}`
	)
	for name, c := range map[string]struct {
		answers map[string]string
		want    string
	}{
		"a policy of the chart":          {map[string]string{policies: labelled, binding: bound}, "colocation"},
		"no policy of the chart":         {map[string]string{policies: none, binding: bound}, "infra"},
		"policies cannot be read":        {map[string]string{binding: bound}, "infra"},
		"not installed":                  {map[string]string{policies: none}, "waterline-system"},
		"a binding without subjects":     {map[string]string{policies: none, binding: `{}`}, "waterline-system"},
		"nothing of it may be looked at": {nil, "waterline-system"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				what := r.URL.Path + " " + r.FormValue("labelSelector")
				asked = append(asked, what)
				w.Header().Set("Content-Type", "application/json")
				answer, found := c.answers[what]
				if !found {
					w.WriteHeader(http.StatusForbidden)
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer server.Close()
			a, err := connectTo(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			if got := a.home(t.Context()); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			once := len(asked)
			if a.home(t.Context()); len(asked) != once {
				t.Errorf("asked again: %q", asked)
			}
		})
	}
}
