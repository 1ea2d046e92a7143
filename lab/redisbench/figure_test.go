package redisbench

import (
	"net/netip"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/lab/agentrun"
	"github.com/waterline-io/waterline/lab/load"
)

// TestUsual checks that only whole windows count, and that a stall of less than half of the time does not.
func TestUsual(t *testing.T) {
	var all []load.Request
	for i := range 100 {
		latency := 5 * time.Millisecond
		switch {
		case i < 10:
			latency = time.Second // of no whole window
		case 50 <= i && i < 55:
			latency = 300 * time.Millisecond
		}
		at := time.Duration(i) * 100 * time.Millisecond
		all = append(all, load.Request{Due: at - latency, Ready: at})
	}
	if got := usual(all[10:]); got != 5*time.Millisecond {
		t.Error(got)
	}
	if got := usual(all[10:20]); got != 0 {
		t.Errorf("%v of less than a window", got)
	}
}

// TestFigurePolicy checks that an agent reads the policy as it is meant.
func TestFigurePolicy(t *testing.T) {
	base, err := agentrun.Policy("", model.SuppressOnHarm)
	if err != nil {
		t.Fatal(err)
	}
	f := figure{address: netip.MustParseAddrPort("192.0.2.1:4711"), max: 2500 * time.Microsecond}
	parsed, err := kube.ParsePolicy([]byte(base + f.policy(serverPod().Pod)))
	if err != nil {
		t.Fatal(err)
	}
	p := parsed.Policy
	if len(p.Services) != 1 || p.Services[0].Max != 2500 || p.Services[0].Source.Port != 4711 ||
		p.Services[0].Source.Metric != load.FigureMetric {
		t.Errorf("%+v", p.Services)
	}
}

// TestFigureNeedsAlone checks that what is measured alone comes first, and that its absence is an error.
func TestFigureNeedsAlone(t *testing.T) {
	b := &bench{found: Runs{Repeats: 3}}
	if _, err := b.figure(0.3); err == nil {
		t.Error("no error without a run alone")
	}
}
