package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
)

// TestWrongArguments checks that wrong arguments are refused with the name of the field, before anything starts.
func TestWrongArguments(t *testing.T) {
	for _, test := range []struct{ plugin, args, want string }{
		{WeightSpreadName, `{"metPercent": 0}`, `pluginConfig[WeightSpread].args.metPercent: Invalid value: 0`},
		{WeightSpreadName, `{"metPercent": 101}`, `write a number from 1 to 100`},
		{WeightSpreadName, `{"refuse": "yes"}`, `refuse`},
		{LoadAwareName, `{"hold": "0s"}`, `pluginConfig[LoadAware].args.hold: Invalid value: "0s"`},
		{LoadAwareName, `{"hold": "10m"}`, `args.settle: Invalid value: "5m0s": write a duration above hold, which is 10m0s`},
		{LoadAwareName, `{"settle": "soon"}`, `soon`},
		{LoadAwareName, `{"hotPercent": -1, "estimatePercent": 1001}`, `args.estimatePercent: Invalid value: 1001`},
		{LoadAwareName, `{"hotPercnt": 80}`, `unknown field "hotPercnt"`},
		{BatchFitName, "agentGrace: -5s", `pluginConfig[BatchFit].args.agentGrace: Invalid value: "-5s"`},
		{CPUSetFitName, `{"agentGrace": 7}`, `agentGrace`},
	} {
		_, err := create(t, test.plugin, test.args)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: %v, want %s", test.plugin, test.args, err, test.want)
		}
	}
}

// create makes a plugin from arguments without a cluster. It returns the error of the arguments, and no plugin: a view
// without a handle cannot follow anything.
func create(t *testing.T, name, args string) (any, error) {
	t.Helper()
	object := &runtime.Unknown{Raw: []byte(args)}
	switch name {
	case WeightSpreadName:
		return made[WeightSpreadArgs](object, func(a WeightSpreadArgs) (place.Settings, error) { return a.settings() })
	case LoadAwareName:
		return made[LoadAwareArgs](object, func(a LoadAwareArgs) (place.Settings, error) { return a.settings() })
	case BatchFitName:
		return made[BatchFitArgs](object, func(a BatchFitArgs) (place.Settings, error) { return a.settings() })
	}
	return made[CPUSetFitArgs](object, func(a CPUSetFitArgs) (place.Settings, error) { return a.settings() })
}

// made runs the factory of a plugin up to its settings.
func made[A any](object runtime.Object, settings func(A) (place.Settings, error)) (s place.Settings, err error) {
	stop := func(_ *view, args A, _ fwk.Handle) (fwk.Plugin, error) {
		s, err = settings(args)
		if err == nil {
			err = errMade
		}
		return nil, err
	}
	_, err = plugin(newView(""), stop)(context.Background(), object, nil)
	if err == errMade { //nolint:errorlint // it is returned as it is
		err = nil
	}
	return s, err
}

type madeError struct{}

func (madeError) Error() string { return "the plugin was not made" }

var errMade error = madeError{}

func TestArguments(t *testing.T) {
	args := "apiVersion: waterline.io/v1alpha1\nkind: LoadAwareArgs\nhold: 30s\nhotPercent: 70\n"
	got, err := create(t, LoadAwareName, args)
	want := place.DefaultSettings()
	want.Hold, want.Hot = 30*time.Second, 700
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, name := range []string{WeightSpreadName, LoadAwareName, BatchFitName, CPUSetFitName} {
		for _, nothing := range []string{"", "{}"} {
			if got, err := create(t, name, nothing); err != nil || got != place.DefaultSettings() {
				t.Errorf("%s %q: %+v, %v", name, nothing, got, err)
			}
		}
	}
}
