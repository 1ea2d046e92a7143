package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Explanation is what the agent knows about one pod: what each of its files should be, is and was, and why.
type Explanation struct {
	Namespace string
	Name      string
	UID       string
	QoS       string
	Mode      model.Mode
	Files     []FileExplanation
	Waiting   []string // whom it waits for, who waits for it, and what is done about that
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

// explain returns what is known of a pod; false if the node has no such pod. It runs in the loop.
func (a *Agent) explain(namespace, name string) (Explanation, bool) {
	var pod *model.Pod
	for _, p := range a.pods.Pods {
		if p.Namespace == namespace && p.Name == name {
			pod = p
		}
	}
	if pod == nil || a.tree == nil {
		return Explanation{}, false
	}
	e := Explanation{Namespace: namespace, Name: name, UID: pod.UID, QoS: pod.QoS.String(), Mode: a.ruling.effect.Policy.Mode}
	tree := a.tree.Model()
	group := tree.Pods[pod.UID]
	for _, s := range a.host.Status(func(dir string) bool {
		return group.Dir != "" && (dir == group.Dir || strings.HasPrefix(dir, group.Dir+"/")) ||
			pod.QoS != model.Guaranteed && dir == tree.Class(pod.QoS)
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
	e.Waiting = waiting(a.plan.Interference, a.pods.Pods, pod.UID)
	if v := a.plan.Evict; v != nil && v.Request != nil && v.Request.UID == pod.APIUID {
		e.Leaves = leaves(v.Request)
	}
	for _, n := range a.plan.Notices {
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
	Waiting           []string           // whom online pods wait for, and what is done about that
	Leaving           []string           // which batch pod should leave, whether the node is hot, and what came of the last one
	Unsupported       []model.Reason     // what the policy asks for and the kernel cannot do
}

// explainNode runs in the loop.
func (a *Agent) explainNode() NodeExplanation {
	p := &a.ruling.effect.Policy
	var clock time.Duration
	if a.load != nil {
		clock = a.load.Clock
	}
	return NodeExplanation{
		Mode: p.Mode, CPU: p.CPU, Memory: p.Memory, Slack: a.plan.Slack, SuppressionMethod: p.Suppress.By, Suppress: a.plan.Suppress,
		Waiting: waiting(a.plan.Interference, a.pods.Pods, ""), Leaving: leaving(a.plan.Evict, a.pods.Pods, clock), Unsupported: a.plan.Unsupported,
	}
}

// Local serves what only this node's administrators may see: GET /explain?namespace=N&pod=P, GET /node, and GET /cpus with or
// without plan=N/P=MODE.
func (a *Agent) Local() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.FormValue("namespace"), r.FormValue("pod")
		var e Explanation
		var found bool
		if err := a.do(r.Context(), func() { e, found = a.explain(namespace, name) }); err != nil {
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
		if err := a.do(r.Context(), func() { e = a.explainNode() }); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		reply(w, e)
	})
	mux.HandleFunc("GET /cpus", func(w http.ResponseWriter, r *http.Request) {
		var answer any
		var notFound string
		var failed error
		if err := a.do(r.Context(), func() { answer, notFound, failed = a.answerCPUs(r.FormValue("plan")) }); err != nil {
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
