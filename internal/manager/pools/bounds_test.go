package pools

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/yarn"
)

// schema is the part of a definition of the API that bounds texts.
type schema struct {
	MaxLength  *int
	Properties map[string]schema
	Items      *schema
}

// tooLong returns where an object has a text that the API server refuses for its length, and how many bounds it has.
func (s schema) tooLong(path string, o any) (where []string, bounds int) {
	add := func(path string, s schema, o any) {
		more, n := s.tooLong(path, o)
		where, bounds = append(where, more...), bounds+n
	}
	switch o := o.(type) {
	case string:
		if s.MaxLength == nil {
			return nil, 0
		}
		if utf8.RuneCountInString(o) > *s.MaxLength {
			where = append(where, path)
		}
		return where, 1
	case map[string]any:
		for name, value := range o {
			add(path+"."+name, s.Properties[name], value)
		}
	case []any:
		for _, value := range o {
			add(path, *s.Items, value)
		}
	}
	return where, bounds
}

// TestStatusIsBounded has texts of any length from NodeManagers, kubelets, a ResourceManager and a coordinator. No text
// of the status is longer than its definition allows: the API server would refuse all of it, in each round.
func TestStatusIsBounded(t *testing.T) {
	long := strings.Repeat("\u00fcber ", 1000)
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	content, err := os.ReadFile("../../../deploy/chart/crds/waterline.io_workerpools.yaml")
	if err == nil {
		err = yaml.Unmarshal(content, &definition)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := poolRound(t, "testdata/small.yaml", nil)
	r.state.Info = yarn.Info{Address: "http://rm.example:8088", Version: long}
	status := &v1alpha1.WorkerPoolStatus{ResourceManager: r.active(nil)}
	for _, step := range []pool.Step{
		{Phase: pool.Lost, Verb: pool.Wait, Why: pool.NodeManagerUnhealthy, Text: long},
		{Phase: pool.Labelled, Verb: pool.LabelHost, Why: pool.WrongLabel, Text: long},
		{Phase: pool.Quarantined, Verb: pool.DeletePod, Failed: true, Why: pool.HostNameMismatch, Text: long},
		{Phase: pool.Provisioning, Verb: pool.Wait, Why: pool.PodStarting},
	} {
		pl := place{worker: &pool.Worker{Pod: &pool.Pod{}}, pod: &podRow{waits: long}, step: step}
		row := r.row(&pl, &v1alpha1.WorkerStatus{})
		if len(row.Message) < 1000 {
			t.Errorf("%s: the message is %q", step.Why, row.Message)
		}
		status.Workers = append(status.Workers, row)
	}
	absent := place{worker: &pool.Worker{Attempts: 2}, step: pool.Step{Phase: pool.Quarantined, Text: long}}
	status.Workers = append(status.Workers, r.row(&absent, &v1alpha1.WorkerStatus{}))
	one := place{
		worker: &pool.Worker{}, crew: crewSeen{status: drain.Status{Text: long}}, step: pool.Step{Phase: pool.Lost},
	}
	status.Workers = append(status.Workers, r.row(&one, &v1alpha1.WorkerStatus{}))
	for _, kind := range []string{v1alpha1.ConditionStepsFailed, v1alpha1.ConditionReady} {
		r.t.add(kind, "StepFailed", &yarn.StatusError{Message: long})
	}
	r.k.conditions(status, r.p, r, r.t)

	text, err := json.Marshal(status)
	var object any
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	where, bounds := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].tooLong("status", object)
	if len(where) > 0 || bounds < 10 {
		t.Errorf("%d texts are bounded, too long are %q", bounds, where)
	}
}
