package kube

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/model"
)

// TestPublishRecords checks that a patch of the Node claims resources under Koordinator's names together with their
// amounts, gives the claim up with the last of them, and says nothing of names that are not written.
func TestPublishRecords(t *testing.T) {
	ours := model.Published{NodeResource: model.NodeResource{Tier: model.TierBatch}, Amount: 300}
	cpu := model.Published{NodeResource: model.NodeResource{Tier: model.TierBatch, Koordinator: true}, Amount: 700}
	memory := cpu
	memory.Memory, memory.Amount = true, 1<<20
	for name, c := range map[string]struct {
		stands, should []model.Published
		want           string
	}{
		"ours": {
			nil, []model.Published{ours},
			`{"metadata":{"uid":"u"},"status":{"allocatable":{"waterline.io/batch-cpu":"300"},"capacity":{"waterline.io/batch-cpu":"300"}}}`,
		},
		"claimed": {
			nil, []model.Published{cpu, memory},
			`{"metadata":{"annotations":{"waterline.io/published":"kubernetes.io/batch-cpu=700,kubernetes.io/batch-memory=1048576"},"uid":"u"},` +
				`"status":{"allocatable":{"kubernetes.io/batch-cpu":"700","kubernetes.io/batch-memory":"1048576"},` +
				`"capacity":{"kubernetes.io/batch-cpu":"700","kubernetes.io/batch-memory":"1048576"}}}`,
		},
		"given up": {
			[]model.Published{cpu}, nil,
			`{"metadata":{"annotations":{"waterline.io/published":null},"uid":"u"},` +
				`"status":{"allocatable":{"kubernetes.io/batch-cpu":null},"capacity":{"kubernetes.io/batch-cpu":null}}}`,
		},
	} {
		var got string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = r.URL.Path + " " + string(body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}`)
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		err = NewPublisher(client.CoreV1().RESTClient(), "n").Write(t.Context(), "u", c.stands, c.should)
		server.Close()
		if want := "/api/v1/nodes/n/status " + c.want; err != nil || got != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", name, err, got, want)
		}
	}
}
