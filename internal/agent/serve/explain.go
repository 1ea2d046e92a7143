// Package serve answers what people want to know of one node, on an address that only the node itself reaches: why its
// files and CPUs are what they are. The command waterline shows the answers.
package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/model"
)

// view is the knowledge of the loop, from which answers are made.
type view struct{ *agent.View }

// Loop passes its view to a function, between two rounds.
type Loop func(ctx context.Context, f func(v *agent.View)) error

// Explanation is what the agent knows about one pod: what each of its files should be, is and was, and why.
type Explanation struct {
	Namespace string
	Name      string
	UID       string
	QoS       string
	Mode      model.Mode
	Files     []FileExplanation
	Waiting   []string // the pods that make it wait, or that it makes wait, and the throttles
	Leaves    string   // why it should leave the node; "": it need not
	Notices   []string
}

// FileExplanation is what the agent knows about one file.
type FileExplanation struct {
	Dir      string
	Knob     string
	Should   model.Value
	Is       *model.Value // nil: the file is not there
	Was      *model.Value // nil: we have not changed it
	Why      string
	Deferred string // why it is not written now; "": it is
}

// explain returns what is known of a pod; false if the node has no such pod.
func (v view) explain(namespace, name string) (Explanation, bool) {
	var pod *model.Pod
	for _, p := range v.Pods {
		if p.Namespace == namespace && p.Name == name {
			pod = p
		}
	}
	if pod == nil || !v.Found {
		return Explanation{}, false
	}
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
	e.Waiting = waiting(v.Plan.Interference, v.Pods, pod.UID)
	if evict := v.Plan.Evict; evict != nil && evict.Request != nil && evict.Request.UID == pod.APIUID {
		e.Leaves = leaves(evict.Request)
	}
	for _, n := range v.Plan.Notices {
		if n.UID == pod.APIUID {
			e.Notices = append(e.Notices, n.Reason.String())
		}
	}
	return e, true
}

// NodeExplanation is what the agent knows about what its node could give to batch.
type NodeExplanation struct {
	Mode   model.Mode
	CPU    model.SellPolicy
	Memory model.SellPolicy
	Slack  *model.Slack // nil: nothing was measured yet

	SuppressionMethod model.SuppressMethod
	Suppress          *model.Suppression // nil: batch is not kept to anything
	Waiting           []string           // the pods that make online pods wait, and the throttles
	// which batch pod should leave, whether the node is hot, and what came of the last one
	Leaving     []string
	Unsupported []model.Reason // features of the policy that the kernel lacks
	Services    []model.Reason // figures of services that are not known
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
		Unsupported: v.Plan.Unsupported,
	}
	if v.Plan.Harm != nil {
		e.Services = v.Plan.Harm.Unknown
	}
	return e
}

// Handler serves what only this node's administrators may see: GET /explain?namespace=N&pod=P, GET /node, and GET /cpus
// with or without plan=N/P=MODE.
func Handler(loop Loop) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.FormValue("namespace"), r.FormValue("pod")
		var e Explanation
		var found bool
		if err := loop(r.Context(), func(v *agent.View) { e, found = view{v}.explain(namespace, name) }); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if !found {
			http.Error(w, fmt.Sprintf("this node has no pod %s in namespace %s", name, namespace), http.StatusNotFound)
			return
		}
		reply(w, e)
	})
	mux.HandleFunc("GET /node", func(w http.ResponseWriter, r *http.Request) {
		var e NodeExplanation
		if err := loop(r.Context(), func(v *agent.View) { e = view{v}.explainNode() }); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		reply(w, e)
	})
	mux.HandleFunc("GET /cpus", func(w http.ResponseWriter, r *http.Request) {
		var answer any
		var notFound string
		var failed error
		if err := loop(r.Context(),
			func(v *agent.View) { answer, notFound, failed = view{v}.answerCPUs(r.FormValue("plan")) }); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		switch {
		case failed != nil:
			http.Error(w, failed.Error(), http.StatusBadRequest)
		case notFound != "":
			http.Error(w, notFound, http.StatusNotFound)
		default:
			reply(w, answer)
		}
	})
	return mux
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client went away
}
