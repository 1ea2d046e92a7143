package program

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestPublic checks what a probe says when its check fails and when it does not, and that the version is among the
// metrics.
func TestPublic(t *testing.T) {
	var alive, ready error
	things := prometheus.NewGauge(prometheus.GaugeOpts{Name: "waterline_things"})
	public, err := Public("v1", things, func() error { return alive }, func() error { return ready })
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		to := httptest.NewRecorder()
		public.ServeHTTP(to, httptest.NewRequest("GET", path, nil))
		return to.Code, to.Body.String()
	}
	for _, ready = range []error{nil, errors.New("no pods yet")} {
		code, body := get("/readyz")
		if ready == nil && (code != 200 || body != "ok\n") || ready != nil && (code != 503 || body != "no pods yet\n") {
			t.Errorf("ready %v: %d %s", ready, code, body)
		}
		if code, body := get("/healthz"); code != 200 {
			t.Errorf("ready %v: not alive: %d %s", ready, code, body)
		}
	}
	alive = errors.New("stands still")
	if code, _ := get("/healthz"); code != 503 {
		t.Errorf("what stands still is alive: %d", code)
	}
	for _, want := range []string{"waterline_things 0\n", `waterline_build_info{version="v1"} 1` + "\n"} {
		if _, body := get("/metrics"); !strings.Contains(body, want) {
			t.Errorf("no %q in %s", want, body)
		}
	}
	if _, err := Public("v1",
		prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "waterline_build_info", ConstLabels: prometheus.Labels{"version": "v1"},
		}), nil, nil); err == nil {
		t.Error("two metrics of one name were registered")
	}
}
