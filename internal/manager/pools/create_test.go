package pools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// TestRefusedPods has an API server that refuses pods beyond a number, as with a ResourceQuota. The pool asks a few
// times in a round, then less and less often, always for other workers, and says why. When the API server takes pods
// again, it gets all of them.
func TestRefusedPods(t *testing.T) {
	const workers = 300
	var mu sync.Mutex
	quota, posts, made, tried := 0, 0, 0, map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if posts++; made >= quota {
			fail(w, http.StatusForbidden, "Forbidden")
			return
		}
		made++
		_, _ = w.Write([]byte("{}"))
	}))
	defer s.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	r := poolRound(t, "testdata/small.yaml", nil)
	r.k.c.o.Core = client.CoreV1().RESTClient()
	have := map[string]bool{}
	// round does a round after a time, and returns how many pods were asked for in it.
	round := func(after time.Duration) int {
		t.Helper()
		posts = 0
		r.now, r.t, r.places = r.now.Add(after), &problems{}, nil
		for i := range workers {
			if name := fmt.Sprintf("w%d", i); !have[name] {
				r.places = append(r.places, &place{worker: &pool.Worker{Name: name}})
			}
		}
		left := r.create(r.those(func(*place) bool { return true }), func(pl *place) {
			pl.err = r.k.createPod(t.Context(), r.p, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: r.p.Namespace, Name: pl.worker.Name,
			}})
		})
		for i := range r.places {
			pl := r.places[i]
			if was := slices.Contains(left, pl); !was {
				mu.Lock()
				tried[pl.worker.Name] = true
				have[pl.worker.Name] = pl.err == nil
				mu.Unlock()
			}
		}
		return posts
	}
	few := func(n int) bool { return n >= maxRefused && n < maxRefused+parallel }

	quota = 100
	if n := round(0); made != 100 || n < 100+maxRefused || n > workers*2/3 { // a pod that is made late begins the row anew
		t.Fatalf("%d pods were made of %d that were asked for", made, n)
	}
	if n := round(time.Second); !few(n) {
		t.Errorf("%d pods were asked for, and all refused", n)
	}
	at, rests := time.Duration(0), []time.Duration(nil)
	for range 1000 {
		n := round(500 * time.Millisecond)
		at += 500 * time.Millisecond
		if n > 0 {
			rests, at = append(rests, at), 0
			if !few(n) {
				t.Errorf("%d pods were asked for", n)
			}
		} else if why := r.t.all[v1alpha1.ConditionStepsFailed]; len(why.errs) != 1 ||
			!strings.Contains(why.errs[0].Error(), "creating pod") {
			t.Errorf("in a pause: %+v", why)
		}
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(rests, want) {
		t.Errorf("the pauses are %s, want %s", rests, want)
	}
	if len(tried) < workers {
		t.Errorf("only %d workers had their turn", len(tried))
	}
	quota = workers
	round(maxRest)
	for range 20 {
		round(time.Second)
	}
	if made != workers {
		t.Errorf("%d pods of %d were made when the API server took them again", made, workers)
	}
}

// TestInTime has an API server that takes a second for each request. A call ends in its time, and the next ones begin
// with what is left.
func TestInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var places []*place
		for range 100 {
			places = append(places, &place{})
		}
		var mu sync.Mutex
		turns, turn := map[*place]int{}, 0
		for call := range 5 {
			left := inTime(5*time.Second, &turn, places, func(pl *place) {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				turns[pl]++
			}, nil)
			if len(left) != 100-5*parallel {
				t.Errorf("call %d left %d of 100", call, len(left))
			}
		}
		for i, pl := range places {
			if turns[pl] != 2 {
				t.Errorf("place %d had %d turns of 2", i, turns[pl])
			}
		}
	})
}

// TestEndsBeforeMarks has many pods that get another mark, and one whose end has come: that is deleted first.
func TestEndsBeforeMarks(t *testing.T) {
	r, f := apiRound(t, nil)
	r.now = time.Now()
	r.in = pool.Input{Now: r.now, Settings: r.settings()}
	for i := range 30 {
		name := fmt.Sprintf("w%d", i)
		end := r.now.Add(time.Hour)
		if i == 29 {
			end = r.now.Add(-time.Second)
		}
		r.in.Workers = append(r.in.Workers, pool.Worker{Name: name, Wanted: true, End: end, Pod: &pool.Pod{}})
		r.places = append(r.places, &place{pod: &podRow{name: name, uid: name}})
	}
	for i := range r.places {
		r.places[i].worker = &r.in.Workers[i]
	}
	r.act(t.Context())
	path := "/namespaces/" + r.p.Namespace + "/pods/w29"
	if len(f.asked) < 31 || f.asked[0] != path || f.asked[1] != path || f.changes["DELETE "+path+" force="] == "" {
		t.Errorf("the requests are %q", f.asked)
	}
}
