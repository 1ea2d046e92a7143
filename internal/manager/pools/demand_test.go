package pools

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

// demandRound returns a round of a pool that follows demand. Its ResourceManager has 512 MiB pending of the label, and
// 256 MiB of the default partition.
func demandRound(t *testing.T) (r *round, looks *int) {
	t.Helper()
	looks = new(int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !strings.HasSuffix(q.URL.Path, "/scheduler") {
			return
		}
		*looks++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"scheduler":{"schedulerInfo":{"queues":{"queue":[{"resources":{"resourceUsagesByPartition":[`+
			`{"partitionName":"elastic","pending":{"memory":512,"vCores":1}},`+
			`{"partitionName":"","pending":{"memory":256,"vCores":1}}]}}]}}}}`)
	}))
	t.Cleanup(server.Close)
	r = poolRound(t, "testdata/small.yaml", func(p *v1alpha1.WorkerPool) {
		p.UID, p.Spec.Size.Demand, p.Spec.YARN.Label.Name = "first", v1alpha1.DemandFollow, "elastic"
	})
	rm, err := yarn.NewRM([]string{server.URL}, yarn.HTTPOptions{MaxAnswer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r.k.observer.Cluster, r.state.Known, r.in.RM.Known = &yarn.Cluster{RM: rm}, true, true
	return r, looks
}

// TestDemandOfAnother checks that nothing is known of the demand of another label or another pool of the same name.
func TestDemandOfAnother(t *testing.T) {
	r, looks := demandRound(t)
	for _, c := range []struct {
		name    string
		change  func()
		looks   int
		pending int64
	}{
		{"the first look", func() {}, 1, 512},
		{"a moment later", func() {}, 1, 512},
		{"a label that is shared", func() { r.p.Spec.YARN.Label.Shared = true }, 2, 768},
		{"another label", func() { r.p.Spec.YARN.Label.Name = "other" }, 3, 256},
		{"another pool", func() { r.p.UID = "second" }, 4, 256},
		{"another cluster", func() { r.k.observer.Cluster = &yarn.Cluster{RM: r.k.observer.Cluster.RM} }, 5, 256},
		{"no change", func() {}, 5, 256},
	} {
		c.change()
		r.followDemand(t.Context())
		if d := r.in.Demand; *looks != c.looks || d.Pending.MemoryMiB != c.pending || !d.Known(r.now) || !d.Follow {
			t.Errorf("%s: %d looks, %+v, %v", c.name, *looks, d, r.k.demand.err)
		}
	}
}

// TestDemandOneAtATime checks that a pool does not read queues while another one does, reads them in the next round,
// and runs as without Follow if that lasts. An error of its own is kept.
func TestDemandOneAtATime(t *testing.T) {
	r, looks := demandRound(t)
	start := r.now
	r.k.c.queues <- struct{}{} // another pool
	r.followDemand(t.Context())
	if *looks != 0 || r.in.Demand.Known(r.now) || r.in.Demand.Blind(r.now) || len(r.t.all) > 0 {
		t.Errorf("%d looks, %+v, %v", *looks, r.in.Demand, r.t.all)
	}
	r.now = start.Add(roundPause + 60*demandInterval)
	r.followDemand(t.Context())
	if *looks != 0 || !r.in.Demand.Blind(r.now) || r.t.all[v1alpha1.ConditionDemandUnknown].errs == nil {
		t.Errorf("%d looks, %+v, %v", *looks, r.in.Demand, r.t.all)
	}
	own := errors.New("its own")
	r.k.demand.err = own
	if r.followDemand(t.Context()); !errors.Is(r.k.demand.err, own) {
		t.Errorf("the error is %v", r.k.demand.err)
	}
	<-r.k.c.queues
	r.now = r.now.Add(roundPause)
	r.followDemand(t.Context())
	if d := r.in.Demand; *looks != 1 || d.Pending != (pool.Size{MemoryMiB: 512, VCores: 1}) || r.k.demand.err != nil {
		t.Errorf("%d looks, %+v, %v", *looks, d, r.k.demand.err)
	}
	if len(r.k.c.queues) > 0 {
		t.Error("the next pool would wait for ever")
	}
}

// TestQuietRound carries out a round without steps. The kind of its pods is known before any is made, and the last
// error of the administration protocol stays, because nothing asked it.
func TestQuietRound(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	r.k.logged[slowResizes] = "refused"
	r.act(t.Context())
	if r.kindOfPod == "" || r.k.logged[slowResizes] != "refused" {
		t.Errorf("kind %q, logged %v", r.kindOfPod, r.k.logged)
	}
}

// TestShows checks which status counts as shown by the API: also one without the valid spec, which older definitions
// lack.
func TestShows(t *testing.T) {
	written := &v1alpha1.WorkerPoolStatus{Wanted: 2, ValidSpec: "{}"}
	for _, c := range []struct {
		api   v1alpha1.WorkerPoolStatus
		shows bool
	}{
		{*written, true}, {v1alpha1.WorkerPoolStatus{Wanted: 2}, true}, {v1alpha1.WorkerPoolStatus{ValidSpec: "{}"}, false},
	} {
		if shows(&c.api, written) != c.shows || written.ValidSpec != "{}" {
			t.Errorf("%+v shows it: %v", c.api, !c.shows)
		}
	}
}
