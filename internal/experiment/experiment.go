// Package experiment shows on the live kernel, with real processes and without a cluster, what the CPU weights and the CPU
// sets that Waterline keeps are worth.
//
// Each experiment builds a private copy of the directories that a kubelet would make, lets a stand-in write what the
// kubelet writes, starts the real agent and real load in it, measures, and takes everything down again. Nothing outside
// that copy is written, save that on cgroup v2 the controllers are switched on below the root for as long as it takes.
//
// The load and the outside reader are processes of their own: the running executable starts itself again with
// [HelperCommand] as its first argument, and must then call [RunHelper].
package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// Config says where and how an experiment runs. The zero value is that of a quiet run of the default length on this host.
type Config struct {
	Seconds    int            // of measuring; 0: what the experiment has by default
	AgentPath  string         // of waterline-agent; "": beside this executable, else in PATH
	CgroupRoot string         // where the cgroup file system is mounted; "": /sys/fs/cgroup
	Hog        bool           // one more pod, annotated 262144, burns all CPUs meanwhile
	Progress   func(Progress) // is told how far the experiment is; nil: nobody is
	Helper     string         // executable that answers HelperCommand; "": this one
	Node       Node           // where the pods are made; nil: they are cgroups of our own
}

// Progress is how far an experiment is.
type Progress struct {
	Experiment string
	Doing      string        // what is being done
	Now        string        // how it looks at the moment; "": nothing to tell
	Elapsed    time.Duration // of Total; both are 0 where the length of a step is not known
	Total      time.Duration
}

// Experiment is one that can be run by its name.
type Experiment struct {
	Name    string
	About   string // in one sentence
	Seconds int    // of measuring, by default
	Run     func(context.Context, Config) (Result, error)
}

// All lists the experiments in the order in which they explain each other.
func All() []Experiment {
	return []Experiment{
		{"weights", "Two pods with equal requests are annotated 8192 and 16384: the second gets twice the CPU time.", 10, Weights},
		{"preempt", "Three pods of equal weight fill the machine, then one annotated 262144 arrives and takes what its weight is worth.", 8, Preempt},
		{"hierarchy", "The same weight is written at the container, the pod, and the pod and its QoS class: only the last wins CPU from Guaranteed pods.", 4, Hierarchy},
		{"drift", "An outsider overwrites weights again and again while the pods burn CPU: the agent puts them back within milliseconds.", 8, Drift},
		{"cpuset", "A server beside a pod that burns all CPUs: its annotation goes from none to share to exclusive while it runs, and its latency is measured.", 10, CPUSets},
		{"burst", "A server stays far below its CPU limit, but its requests come in bursts: it is stopped less, and answers sooner, once it may save up what it does not use.", 30, Bursts},
	}
}

// Find returns the experiment of this name.
func Find(name string) (Experiment, bool) {
	for _, e := range All() {
		if e.Name == name {
			return e, true
		}
	}
	return Experiment{}, false
}

// Result is what an experiment found.
type Result struct {
	Name     string
	About    string
	When     time.Time
	Machine  string
	Metrics  map[string]float64   // each key ends in its unit, unless it is a ratio
	Series   map[string][]float64 // what the chart shows over time, for those who want to draw their own
	Headline Headline
	Table    Table
	Chart    chart.Chart
	Notes    []string // what a reader should know to judge the figures
}

// Headline is the one figure that an experiment is run for.
type Headline struct {
	Value string
	Goal  string
	Met   bool
}

// String returns the headline in one line.
func (h Headline) String() string {
	verdict := "met"
	if !h.Met {
		verdict = "NOT met"
	}
	return fmt.Sprintf("%s (goal: %s; %s)", h.Value, h.Goal, verdict)
}

// JSON returns the result in the form that all figures of Waterline are kept in. The commit is that of the measured build.
func (r *Result) JSON(commit string) ([]byte, error) {
	text, err := json.MarshalIndent(struct {
		Name    string               `json:"name"`
		When    time.Time            `json:"when"`
		Machine string               `json:"machine"`
		Commit  string               `json:"commit"`
		Metrics map[string]float64   `json:"metrics"`
		Series  map[string][]float64 `json:"series,omitempty"`
	}{r.Name, r.When, r.Machine, commit, r.Metrics, r.Series}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the result of %s: %w", r.Name, err)
	}
	return append(text, '\n'), nil
}

// root returns where the cgroup file system is mounted.
func (c Config) root() string {
	if c.CgroupRoot == "" {
		return host.DefaultRoot
	}
	return c.CgroupRoot
}

// seconds returns how long to measure.
func (c Config) seconds(byDefault int) int {
	if c.Seconds == 0 {
		return byDefault
	}
	return c.Seconds
}

// begin returns the result of an experiment that begins now.
func begin(name string, l *lab) Result {
	e, _ := Find(name)
	r := Result{Name: name, About: e.About, When: time.Now().UTC().Truncate(time.Second), Machine: DescribeMachine(l.box.mount.Version)}
	if l.cfg.Hog {
		r.Notes = append(r.Notes, "One more pod, annotated 262144, burned all CPUs meanwhile.")
	}
	return r
}
