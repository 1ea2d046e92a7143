package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
)

// WeightSpreadArgs are the arguments of the plugin WeightSpread.
type WeightSpreadArgs struct {
	metav1.TypeMeta `json:",inline"`
	// Refuse is true to refuse nodes on which a pod with a weight would get too little CPU, or make another get too
	// little. By default, such nodes only score less.
	Refuse bool `json:"refuse,omitempty"`
	// MetPercent is the part of the CPU that a weight lets its pod expect, below which a node is refused: 1 to 100,
	// by default 90.
	MetPercent *int64 `json:"metPercent,omitempty"`
}

// LoadAwareArgs are the arguments of the plugin LoadAware.
type LoadAwareArgs struct {
	metav1.TypeMeta `json:",inline"`
	// ReportMaxAge is the age from which a node's report no longer counts, by default 30 minutes. An agent writes its
	// report at least every 24 minutes.
	ReportMaxAge *metav1.Duration `json:"reportMaxAge,omitempty"`
	// AgentGrace is for how long a node's agent may be away before the node's report no longer counts, by default 30 s.
	AgentGrace *metav1.Duration `json:"agentGrace,omitempty"`
	// Hold is how long the estimate of a pod counts in full, by default one minute.
	Hold *metav1.Duration `json:"hold,omitempty"`
	// Settle is when that estimate has faded to nothing, by default 5 minutes. It is more than Hold.
	Settle *metav1.Duration `json:"settle,omitempty"`
	// EstimatePercent is the part of its request that a new pod is expected to use: 0 to 1000, by default 70.
	EstimatePercent *int64 `json:"estimatePercent,omitempty"`
	// HotPercent is the part of a node's capacity from which its load scores 0: 1 to 100, by default 85.
	HotPercent *int64 `json:"hotPercent,omitempty"`
}

// BatchFitArgs are the arguments of the plugin BatchFit.
type BatchFitArgs struct {
	metav1.TypeMeta `json:",inline"`
	// AgentGrace is for how long a node's agent may be away before the node takes no more batch, by default 30 s.
	AgentGrace *metav1.Duration `json:"agentGrace,omitempty"`
	// ReportMaxAge is the age from which a node's report no longer counts for the score, by default 30 minutes.
	ReportMaxAge *metav1.Duration `json:"reportMaxAge,omitempty"`
}

// CPUSetFitArgs are the arguments of the plugin CPUSetFit.
type CPUSetFitArgs struct {
	metav1.TypeMeta `json:",inline"`
	// AgentGrace is for how long a node's agent may be away before its list of free CPUs no longer counts, by default
	// 30 s.
	AgentGrace *metav1.Duration `json:"agentGrace,omitempty"`
	// ReportMaxAge is the age from which a node's report no longer counts, by default 30 minutes.
	ReportMaxAge *metav1.Duration `json:"reportMaxAge,omitempty"`
}

// decode reads a plugin's arguments. Fields that do not exist are errors.
func decode(object runtime.Object, into any) error {
	if object == nil {
		return nil
	}
	unknown, ok := object.(*runtime.Unknown)
	if !ok {
		return fmt.Errorf("reading arguments: they are of type %T, not *runtime.Unknown", object)
	}
	raw, err := yaml.YAMLToJSON(unknown.Raw) // JSON is YAML too
	if err != nil {
		return fmt.Errorf("reading arguments: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading arguments %s: %w", bytes.TrimSpace(raw), err)
	}
	return nil
}

// reader sets settings from arguments, and collects what is wrong with them.
type reader struct {
	plugin string
	wrong  field.ErrorList
}

func (r *reader) path(name string) *field.Path {
	return field.NewPath("pluginConfig").Key(r.plugin).Child("args", name)
}

// duration sets a positive duration, if there is one.
func (r *reader) duration(name string, value *metav1.Duration, into *time.Duration) {
	if value == nil {
		return
	}
	if *into = value.Duration; value.Duration <= 0 {
		r.wrong = append(r.wrong, field.Invalid(r.path(name), value.Duration.String(),
			"write a duration above 0, such as 30s"))
	}
}

// percent sets a part in thousandths, if there is one.
func (r *reader) percent(name string, value *int64, least, most int64, into *int64) {
	if value == nil {
		return
	}
	if *into = *value * 10; *value < least || *value > most {
		r.wrong = append(r.wrong, field.Invalid(r.path(name), *value,
			fmt.Sprintf("write a number from %d to %d", least, most)))
	}
}

func (r *reader) err() error { return r.wrong.ToAggregate() }

func (a *WeightSpreadArgs) settings() (place.Settings, error) {
	s, r := place.DefaultSettings(), reader{plugin: WeightSpreadName}
	r.percent("metPercent", a.MetPercent, 1, 100, &s.Met)
	return s, r.err()
}

func (a *LoadAwareArgs) settings() (place.Settings, error) {
	s, r := place.DefaultSettings(), reader{plugin: LoadAwareName}
	r.duration("reportMaxAge", a.ReportMaxAge, &s.ReportMaxAge)
	r.duration("agentGrace", a.AgentGrace, &s.AgentGrace)
	r.duration("hold", a.Hold, &s.Hold)
	r.duration("settle", a.Settle, &s.Settle)
	r.percent("estimatePercent", a.EstimatePercent, 0, 1000, &s.Estimate)
	r.percent("hotPercent", a.HotPercent, 1, 100, &s.Hot)
	if len(r.wrong) == 0 && s.Settle <= s.Hold {
		r.wrong = append(r.wrong, field.Invalid(r.path("settle"), s.Settle.String(),
			fmt.Sprintf("write a duration above hold, which is %s", s.Hold)))
	}
	return s, r.err()
}

func (a *BatchFitArgs) settings() (place.Settings, error) {
	s, r := place.DefaultSettings(), reader{plugin: BatchFitName}
	r.duration("agentGrace", a.AgentGrace, &s.AgentGrace)
	r.duration("reportMaxAge", a.ReportMaxAge, &s.ReportMaxAge)
	return s, r.err()
}

func (a *CPUSetFitArgs) settings() (place.Settings, error) {
	s, r := place.DefaultSettings(), reader{plugin: CPUSetFitName}
	r.duration("agentGrace", a.AgentGrace, &s.AgentGrace)
	r.duration("reportMaxAge", a.ReportMaxAge, &s.ReportMaxAge)
	return s, r.err()
}
