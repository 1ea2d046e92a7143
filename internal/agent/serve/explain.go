// Package serve answers what people want to know of one node, on an address that only the node itself reaches: why its
// files and CPUs are what they are. The command waterline shows the answers.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/agent/loopview"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

// view is the knowledge of the loop, from which answers are made.
type view struct{ *loopview.View }

// Loop passes its view to a function, between two rounds.
type Loop func(ctx context.Context, f func(v *loopview.View)) error

// Explanation is what the agent knows about one pod: what each of its files should be, is and was, and why.
type Explanation struct {
	Namespace string
	Name      string
	UID       string
	QoS       string
	Mode      model.Mode
	At        time.Time `json:",omitzero"` // of the recorded round that is explained; zero: now
	Files     []FileExplanation
	Waiting   []string // the pods that make it wait, or that it makes wait, and the throttles
	Hint      string   // what came of the CPUs that it was hinted; "": it has no hint, or no CPUs of its own
	Leaves    string   // why it should leave the node; "": it need not
	Notices   []string
}

// FileExplanation is what the agent knows about one file.
type FileExplanation struct {
	Dir      string
	Knob     string
	Should   model.Value
	Is       *model.Value // nil: the file is not there, or its content is not recorded
	Was      *model.Value // nil: we have not changed it
	Why      string
	Deferred string // why it is not written now; "": it is
}

// noPod is the error about a pod that the node does not have.
type noPod struct{ namespace, name string }

func (e noPod) Error() string {
	return fmt.Sprintf("this node has no pod %s in namespace %s", e.name, e.namespace)
}

// find returns the index of a pod, the first one while a replaced one is still listed. The error is a noPod.
func (v view) find(namespace, name string) (int, error) {
	i := slices.IndexFunc(v.Pods, func(p *model.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 || !v.Found {
		return 0, noPod{namespace, name}
	}
	return i, nil
}

// explain returns what is known of a pod. The error is a noPod.
func (v view) explain(namespace, name string) (Explanation, error) {
	i, err := v.find(namespace, name)
	if err != nil {
		return Explanation{}, err
	}
	pod := v.Pods[i]
	e := Explanation{Namespace: namespace, Name: name, UID: pod.UID, QoS: pod.QoS.String(), Mode: v.Policy.Mode}
	group := v.Tree.Pods[pod.UID]
	for _, s := range v.Files(func(dir string) bool {
		return group.Dir != "" && (dir == group.Dir || strings.HasPrefix(dir, group.Dir+"/")) ||
			pod.QoS != model.Guaranteed && dir == v.Tree.Class(pod.QoS)
	}) {
		f := FileExplanation{Dir: s.Dir, Knob: s.Knob.String(), Should: s.Value, Why: s.Reason.String()}
		if s.Exists {
			f.Is = &s.Is
		}
		if s.Owned {
			f.Was = &s.Was
		}
		if s.Deferred != nil {
			f.Deferred = s.Deferred.String()
		}
		e.Files = append(e.Files, f)
	}
	e.Hint = hint(v.Plan.CPUs, pod)
	e.Waiting = waiting(v.Plan.Interference, v.Pods, pod.UID)
	if evict := v.Plan.Evict; evict != nil && evict.Request != nil && evict.Request.UID == pod.APIUID {
		e.Leaves = leaves(evict.Request)
	}
	for _, n := range v.Plan.Notices {
		if n.UID == pod.APIUID {
			e.Notices = append(e.Notices, n.Reason.String())
		}
	}
	return e, nil
}

// hint describes what came of the hint of a pod with its own CPUs.
func hint(plan *model.CPUPlan, pod *model.Pod) string {
	hinted := pod.Annotations.Hint
	if plan == nil || hinted.Empty() {
		return ""
	}
	var own model.CPUSet
	for _, o := range plan.Own {
		if o.UID == pod.UID {
			own = own.Or(o.CPUs)
		}
	}
	switch own {
	case model.CPUSet{}:
		return ""
	case hinted:
		return fmt.Sprintf("it has the CPUs that it was hinted, %s", hinted)
	}
	return fmt.Sprintf("it was hinted CPUs %s and has %s: when it got its CPUs, not all of the hinted ones were free, "+
		"or they did not fit its request; or the request or the hint changed since", hinted, own)
}

// NodeExplanation is what the agent knows about what its node could give to batch.
type NodeExplanation struct {
	Mode   model.Mode
	At     time.Time `json:",omitzero"` // of the recorded round that is explained; zero: now
	CPU    model.SellPolicy
	Memory model.SellPolicy
	Slack  *model.Slack // nil: nothing was measured yet

	SuppressionMethod model.SuppressMethod
	Suppress          *model.Suppression // nil: batch is not kept to anything
	Waiting           []string           // the pods that make online pods wait, and the throttles
	// which batch pod should leave, whether the node is hot, and what came of the last one
	Leaving     []string
	Unsupported []model.Reason // features of the policy that the kernel lacks
	Services    []model.Reason // figures of services that are not known, or too high by a fault of their own
	Starved     []model.Reason // the node's own services that waited for CPUs in the last minute, and because of whom
	Fought      []string       // files that another writer fights for, as "DIR KNOB"
	// How often other writers overwrote files, which was repaired, by the name of the knob; and since when that counts.
	Repairs map[string]uint64 `json:",omitempty"`
	Age     time.Duration     `json:",omitempty"`
	// Errors that stand, by the operation of the agent that fails, such as kubelet.
	Troubles map[string]string `json:",omitempty"`
}

// explainNode returns what the node could give to batch.
func (v view) explainNode() NodeExplanation {
	p := &v.Policy
	var clock time.Duration
	if v.Load != nil {
		clock = v.Load.Clock
	}
	e := NodeExplanation{
		Mode: p.Mode, CPU: p.CPU, Memory: p.Memory, Slack: v.Plan.Slack,
		SuppressionMethod: p.Suppress.By, Suppress: v.Plan.Suppress,
		Waiting: waiting(v.Plan.Interference, v.Pods, ""), Leaving: leaving(v.Plan.Evict, v.Pods, clock),
		Unsupported: v.Plan.Unsupported, Age: v.Age, Troubles: v.Troubles,
	}
	for knob, count := range v.Repairs {
		if e.Repairs == nil {
			e.Repairs = map[string]uint64{}
		}
		e.Repairs[knob.String()] = count
	}
	if v.Plan.Harm != nil {
		e.Services, e.Starved = v.Plan.Harm.Services, v.Plan.Harm.Starved
	}
	for i := range v.Plan.Settings {
		if s := &v.Plan.Settings[i]; s.Deferred != nil && s.Deferred.Code == model.ForeignWriter {
			e.Fought = append(e.Fought, s.Dir+" "+s.Knob.String())
		}
	}
	return e
}

// Handler serves what only this node's administrators may see: GET /explain?namespace=N&pod=P, GET /node, GET /pods,
// GET /cpus with or without plan=N/P=MODE, and GET /journal, which is the content of the journal in the run directory.
func Handler(loop Loop, runDir string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /journal", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/jsonl")
		if err := journal.Copy(w, runDir); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /explain", about(loop, func(v view, asked url.Values) (any, error) {
		return v.explain(asked.Get("namespace"), asked.Get("pod"))
	}))
	mux.HandleFunc("GET /node", about(loop, func(v view, _ url.Values) (any, error) { return v.explainNode(), nil }))
	mux.HandleFunc("GET /pods", about(loop, func(v view, _ url.Values) (any, error) { return v.pods(), nil }))
	mux.HandleFunc("GET /cpus", about(loop, func(v view, asked url.Values) (any, error) {
		if plan := asked.Get("plan"); plan != "" {
			return v.planCPUs(plan)
		}
		return v.cpuMap()
	}))
	return mux
}

// about answers from the view of the loop. f gets what the client asks for.
func about(loop Loop, f func(v view, asked url.Values) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query() // not by FormValue on the loop: that may wait for a client's body
		var answer any
		var failed error
		err := loop(r.Context(), func(v *loopview.View) { answer, failed = f(view{v}, asked) })
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case errors.As(failed, &noPod{}):
			http.Error(w, failed.Error(), http.StatusNotFound)
		case failed != nil:
			http.Error(w, failed.Error(), http.StatusBadRequest)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer) // the client went away
		}
	}
}
