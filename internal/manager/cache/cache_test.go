package cache

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/test/poll"
)

// TestPoll lists Leases that change and go, while the API server is there and while it is not.
func TestPoll(t *testing.T) {
	lease := func(name string, second int64) coordinationv1.Lease {
		at := metav1.NewMicroTime(time.Unix(second, 0))
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &at},
		}
	}
	var answer atomic.Pointer[coordinationv1.LeaseList] // nil: an error
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("resourceVersion") != "0" || r.FormValue("watch") != "" {
			t.Errorf("asked for %s", r.URL)
		}
		asked.Add(1)
		list := answer.Load()
		if list == nil {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	table := New(func(obj any) int64 { return obj.(*coordinationv1.Lease).Spec.RenewTime.UnixMicro() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		table.Poll(ctx, client.CoordinationV1().RESTClient(), "leases", corev1.NamespaceNodeLease, time.Millisecond,
			&coordinationv1.LeaseList{})
		close(done)
	}()
	until := func(what string, holds func() bool) {
		t.Helper()
		if !poll.Until(time.Minute, time.Millisecond, holds) {
			rows, _ := table.All()
			t.Fatalf("it never came: %s; %v", what, rows)
		}
	}
	holds := func(name string, second int64) func() bool {
		return func() bool {
			at, found := table.Get(corev1.NamespaceNodeLease + "/" + name)
			return found == (second != 0) && at == second*1e6
		}
	}
	until("it asks", func() bool { return asked.Load() > 0 })
	if table.Fresh(time.Now().Add(time.Hour), 0) {
		t.Error("nothing was listed, and it counts as up to date")
	}
	answer.Store(&coordinationv1.LeaseList{Items: []coordinationv1.Lease{lease("a", 5), lease("b", 6)}})
	until("both are there", holds("b", 6))
	until("it is up to date", func() bool { return table.Fresh(time.Now().Add(time.Hour), 3*time.Second) })
	answer.Store(&coordinationv1.LeaseList{Items: []coordinationv1.Lease{lease("a", 15)}})
	until("one was renewed", holds("a", 15))
	until("the other is gone", holds("b", 0))
	answer.Store(nil)
	until("it is not up to date", func() bool { return !table.Fresh(time.Now().Add(time.Hour), 0) })
	if !holds("a", 15)() {
		t.Error("while the API server is away, what was known is forgotten")
	}
	cancel()
	<-done
}

// TestGone checks that each object that goes is told of once, with its last value, also if that shows in a list only.
func TestGone(t *testing.T) {
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
	}
	table := New(func(obj any) string { n := obj.(*corev1.Node); return n.Name + n.Labels["zone"] })
	var gone []string
	table.Gone = func(last string) {
		if _, there := table.Get(last[:1]); !there {
			t.Errorf("%s was forgotten before", last)
		}
		gone = append(gone, last)
	}
	err := errors.Join(table.Add(node("a", "1")), table.Add(node("b", "1")), table.Add(node("c", "1")),
		table.Delete(node("a", "2")), // its last change comes with its end
		table.Update(node("b", "3")), table.Replace([]any{node("c", "4")}, ""), table.Replace(nil, ""))
	if want := []string{"a2", "b3", "c4"}; err != nil || !slices.Equal(gone, want) {
		t.Errorf("gone: %q, want %q; %v", gone, want, err)
	}
	if rows, _ := table.All(); len(rows) != 0 {
		t.Errorf("left: %v", rows)
	}
}
