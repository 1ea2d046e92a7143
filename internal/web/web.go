// Package web is the dashboard: static files that are part of the program, over a read-only view in JSON of what the
// cluster reports. It decides and changes nothing.
//
// Each replica of the manager follows NodeReports, policies and worker pools itself, so that every replica can answer.
// A few words are kept of each object, and sums of the cluster over a day (see [history]). Everything else is computed
// only while somebody looks.
//
// Each request for data carries a bearer token, which the API server reviews. A caller sees what this token may read
// in the API, and nothing else. There are no cookies, so no other site can use a browser's session.
package web

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/docs"
	"github.com/waterline-io/waterline/internal/manager/cache"
)

// Options configure a [Server].
type Options struct {
	// Client and Custom, the latter for Waterline's own API group, have rate limits of their own: requests of viewers must
	// not delay the manager's.
	Client         kubernetes.Interface
	Custom         rest.Interface
	PoolNamespaces []string // the namespaces that may have worker pools
	Version        string   // of the program
	Log            *slog.Logger
	Now            func() time.Time // nil: [time.Now]
}

// Server is the dashboard of one replica.
type Server struct {
	o        Options
	instance string // differs between replicas and between starts, because revisions and history do
	began    time.Time
	access   *access
	reasons  map[string]docs.Meaning

	reports  *cache.Table[node]
	policies *cache.Table[v1alpha1.ColocationPolicy]
	pools    map[string]*cache.Table[v1alpha1.WorkerPool] // by namespace

	mu      sync.Mutex // guards what follows
	history history
	view    *view // the last one made; nil: none
	summary *encoded
	summed  time.Time // when summary was made
	pods    map[string]podList
}

// New returns a server. Its data is followed by [Server.Run].
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		o: o, instance: rand.Text(), began: o.Now(), access: newAccess(o.Client, o.Now),
		reasons: docs.Meanings(docs.Reasons),
		policies: cache.New(func(obj any) v1alpha1.ColocationPolicy {
			p := obj.(*v1alpha1.ColocationPolicy).DeepCopy()
			p.ManagedFields = nil
			return *p
		}),
		pools: map[string]*cache.Table[v1alpha1.WorkerPool]{}, pods: map[string]podList{},
	}
	rows := &rows{}
	s.reports = cache.New(func(obj any) node { return rows.read(obj.(*v1alpha1.NodeReport)) })
	for _, namespace := range o.PoolNamespaces {
		s.pools[namespace] = cache.New(func(obj any) v1alpha1.WorkerPool {
			p := obj.(*v1alpha1.WorkerPool).DeepCopy()
			p.ManagedFields = nil
			return *p
		})
	}
	return s
}

// Run follows the API and records the history until the context ends.
func (s *Server) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.reports.Follow(ctx, s.o.Custom, "nodereports", "", "", &v1alpha1.NodeReport{}) })
	wg.Go(func() { s.policies.Follow(ctx, s.o.Custom, "colocationpolicies", "", "", &v1alpha1.ColocationPolicy{}) })
	for namespace, pools := range s.pools {
		wg.Go(func() { pools.Follow(ctx, s.o.Custom, "workerpools", namespace, "", &v1alpha1.WorkerPool{}) })
	}
	tick := time.NewTicker(fine)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			s.sample()
		}
	}
	wg.Wait()
}

// sample adds the present sums to the history, if the nodes are known.
func (s *Server) sample() {
	if !s.reports.Listed() {
		return
	}
	now := s.o.Now()
	all := s.sums(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.add(now, all)
}

func (s *Server) sums(now time.Time) (all sums) {
	s.reports.Each(func(_ string, n node) { all.add(&n, now) })
	return all
}

// mustListNodes returns a [problem] if the caller may not see the nodes, or if they are not known yet.
func (s *Server) mustListNodes(ctx context.Context, c *caller) error {
	err := c.must(ctx, listNodes)
	if err == nil && !s.reports.Listed() {
		return errStarting
	}
	return err
}

// Handler serves the pages and the view.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]answer{
		"me": s.me, "cluster": s.cluster, "nodes": s.nodes, "nodes/{name}": s.node, "policies": s.listPolicies,
		"pools": s.listPools,
	} {
		mux.Handle("GET /api/v1/"+path, s.answer(answer))
	}
	mux.Handle("GET /", static())
	return secured(mux)
}

// answer computes the answer to one request of a known caller: a value for JSON, or [encoded] JSON.
type answer func(r *http.Request, c *caller) (any, error)

// problem is an error whose text and HTTP status are sent to the caller.
type problem struct {
	status int
	text   string
}

func (p problem) Error() string { return p.text }

func (s *Server) answer(f answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		c, err := s.access.caller(r.Context(), r.Header.Get("Authorization"))
		var value any
		if err == nil {
			value, err = f(r, c)
		}
		var known problem
		switch {
		case errors.As(err, &known):
			refuse(w, known)
		case err != nil:
			s.o.Log.Warn("the dashboard cannot answer", "path", r.URL.Path, "err", err)
			refuse(w, problem{http.StatusServiceUnavailable,
				"The manager cannot reach the API server now. It keeps trying; this page does too."})
		default:
			send(w, r, value)
		}
	})
}

// refuse answers with a text that a page can show.
func refuse(w http.ResponseWriter, p problem) {
	switch p.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "2")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": p.text}) // the caller has left
}
