package evict

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/test/managertest"
)

// evictions is an API server with one pod, and a manager before it.
type evictions struct {
	*Evictor
	t       *testing.T
	pod     *corev1.Pod
	team    string         // label of its namespace
	answer  *metav1.Status // to evictions; nil: they are done
	at      time.Duration
	renewed int
	slow    time.Duration // that it takes to look a pod up
	asked   []policyv1.Eviction
	looked  int
	events  []corev1.Event
	said    []string // reasons of the condition
	begin   func()   // another leader
	record  corev1.ConfigMap
	lost    bool // the record cannot be reached
}

const anUID = "0a1b2c3d-0000-4000-8000-000000000001"

func newEvictions(t *testing.T) *evictions {
	w := &evictions{t: t, at: time.Hour, team: "video", pod: &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "batch", Name: "sort-0", UID: anUID, Labels: map[string]string{v1alpha1.LabelQoS: "BE"},
		},
		Spec: corev1.PodSpec{NodeName: "a"},
	}}
	client, custom := managertest.Serve(t, http.HandlerFunc(w.serve))
	log := slog.New(slog.DiscardHandler)
	f, p := fleet.New(), fleet.NewPolicies(log, false)
	managertest.Add(t, f.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "w"}, Spec: corev1.PodSpec{NodeName: "a"}}
	agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
	managertest.Add(t, f.Agents, agent)
	managertest.Add(t, p, managertest.Policy("web", 1, func(s *v1alpha1.ColocationPolicySpec) {
		s.Protect.Eviction = &v1alpha1.EvictionSpec{}
		s.Privileges = []v1alpha1.PrivilegeSpec{{
			NamespaceSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "video"}},
			Allow:             []v1alpha1.PrivilegeName{"NeverEvict"},
		}}
	}))
	w.begin = func() {
		w.Evictor = New(&Config{
			Core: client.CoreV1().RESTClient(), Custom: custom, Fleet: f, Policies: p, Log: log,
			Settings: evictbudget.DefaultSettings(), Namespace: "w",
		})
	}
	w.begin()
	w.round("")
	w.at += time.Hour
	w.round("")
	return w
}

func (w *evictions) serve(out http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	read := func(into any) {
		if err := json.Unmarshal(body, into); err != nil {
			w.t.Errorf("%s %s: %v: %s", r.Method, r.URL.Path, err, body)
		}
	}
	out.Header().Set("Content-Type", "application/json")
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	switch {
	case strings.HasSuffix(r.URL.Path, "/pods/sort-0/eviction"):
		var e policyv1.Eviction
		read(&e)
		if w.asked = append(w.asked, e); w.answer != nil {
			answer := *w.answer
			answer.TypeMeta, answer.Status = status.TypeMeta, metav1.StatusFailure
			status = &answer
			out.Header().Set("Retry-After", "1")
			out.WriteHeader(int(answer.Code))
		}
	case strings.HasSuffix(r.URL.Path, "/pods/sort-0"):
		w.at += w.slow
		if w.looked++; w.pod == nil {
			out.WriteHeader(http.StatusNotFound)
			status = &metav1.Status{
				TypeMeta: status.TypeMeta, Status: metav1.StatusFailure, Code: http.StatusNotFound,
				Reason: metav1.StatusReasonNotFound,
			}
			break
		}
		_ = json.NewEncoder(out).Encode(w.pod)
		return
	case strings.HasSuffix(r.URL.Path, "/namespaces/batch"):
		_ = json.NewEncoder(out).Encode(&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "batch", Labels: map[string]string{"team": w.team}},
		})
		return
	case strings.HasSuffix(r.URL.Path, "/w/configmaps/"+ledgerName):
		if w.lost {
			out.WriteHeader(http.StatusServiceUnavailable)
			status.Status, status.Code = metav1.StatusFailure, http.StatusServiceUnavailable
			break
		}
		if r.Method == http.MethodPut {
			read(&w.record)
		}
		w.record.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		_ = json.NewEncoder(out).Encode(&w.record)
		return
	case strings.HasSuffix(r.URL.Path, "/events"):
		var e corev1.Event
		read(&e)
		w.events = append(w.events, e)
	case strings.HasSuffix(r.URL.Path, "/nodereports/a/status"):
		var report v1alpha1.NodeReport
		read(&report)
		if got := r.URL.Query().Get("fieldManager"); got != evictionManager || len(report.Status.Conditions) != 1 ||
			report.Status.Conditions[0].Type != v1alpha1.ConditionEvicted {
			w.t.Errorf("%s applies %s", got, body)
		}
		w.said = append(w.said, report.Status.Conditions[0].Reason)
	default:
		w.t.Errorf("%s %s", r.Method, r.URL.Path)
	}
	_ = json.NewEncoder(out).Encode(status)
}

// round lets the manager look two seconds later. The node asks for the pod with this UID, "" for none, and has just
// renewed that.
func (w *evictions) round(uid string) {
	w.t.Helper()
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if w.renewed++; uid != "" {
		report.Status.Eviction = &v1alpha1.EvictionRequest{
			Namespace: "batch", Name: "sort-0", UID: uid, Reason: "MemoryExhausted", Message: "left=0B",
			Renewed: metav1.NewMicroTime(time.Unix(int64(w.renewed), 0)),
		}
	}
	managertest.Add(w.t, w.Fleet.Reports, report)
	w.at += 2 * time.Second
	w.Round(w.t.Context(), func() time.Duration { return w.at }, map[string]string{"a": "web"})
}

// TestEvict: exactly the pod that was asked for and looked up is evicted, with its own grace, and its owner and the
// node are told.
func TestEvict(t *testing.T) {
	w := newEvictions(t)
	w.round(anUID)
	if len(w.asked) != 1 || w.asked[0].Name != "sort-0" || w.asked[0].Namespace != "batch" ||
		*w.asked[0].DeleteOptions.Preconditions.UID != anUID || w.asked[0].DeleteOptions.GracePeriodSeconds != nil {
		t.Fatalf("evicted were %+v", w.asked)
	}
	if len(w.events) != 1 || w.events[0].Reason != reasonEvicted || w.events[0].InvolvedObject.UID != anUID ||
		!strings.Contains(w.events[0].Message, "MemoryExhausted left=0B") {
		t.Errorf("told was %+v", w.events)
	}
	w.pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for range 5 {
		w.round(anUID)
	}
	w.pod = nil
	w.round(anUID)
	if got := fmt.Sprint(w.said); len(w.asked) != 1 || got != "[Evicted Leaving Gone]" ||
		w.Counts()[evictbudget.Leaving] != 1 {
		t.Errorf("said was %v, evicted %d times, counted %v", got, len(w.asked), w.Counts())
	}
}

// ofPool makes a pod a worker.
func ofPool(p *corev1.Pod) {
	p.Labels[v1alpha1.LabelPool] = "night"
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion, Kind: "WorkerPool", Name: "night", Controller: new(true),
	}}
}

// TestWorker: a worker is left to its pool, which is told only of what was granted, and its eviction counts once.
func TestWorker(t *testing.T) {
	w := newEvictions(t)
	ofPool(w.pod)
	for range 5 {
		w.round(anUID)
	}
	if len(w.asked) != 0 || w.Draining()["a"] != anUID || fmt.Sprint(w.said) != "[PoolDrains]" || len(w.events) != 1 ||
		w.events[0].Reason != reasonDrains || len(w.state.Counting(w.at)) != 1 ||
		!strings.Contains(w.record.Data[ledgerKey], anUID) {
		t.Errorf("evicted %+v, draining %v, said %v, told %+v, recorded %v", w.asked, w.Draining(), w.said, w.events,
			w.record.Data)
	}
	if w.round(""); len(w.Draining()) != 0 {
		t.Errorf("nobody requests it any more: %v", w.Draining())
	}
	w.at += 5 * time.Minute
	w.round("")
	if w.round(anUID); len(w.asked) != 1 {
		t.Errorf("five minutes after the grant it is evicted like others, but it was %d times", len(w.asked))
	}

	w = newEvictions(t)
	w.lost = true
	ofPool(w.pod)
	if w.round(anUID); len(w.Draining()) != 0 || w.Counts()[evictbudget.Unrecorded] != 1 {
		t.Errorf("it was granted without a record: %v, %v", w.Draining(), w.Counts())
	}
}

// TestEvictsNobodyElse: what an agent says of a pod is not believed.
func TestEvictsNobodyElse(t *testing.T) {
	for want, change := range map[evictbudget.Verdict]func(p *corev1.Pod){
		evictbudget.NotItsOwn: func(p *corev1.Pod) { p.Spec.NodeName = "b" },
		evictbudget.NotBatch:  func(p *corev1.Pod) { p.Labels = nil },
		evictbudget.Kept:      func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationEvict: "no"} },
		evictbudget.Gone:      func(p *corev1.Pod) { p.UID = types.UID("0a1b2c3d-0000-4000-8000-000000000002") },
	} {
		w := newEvictions(t)
		change(w.pod)
		w.round(anUID)
		if len(w.asked) != 0 || len(w.events) != 0 || w.Counts()[want] != 1 || fmt.Sprint(w.said) != "["+string(want)+"]" {
			t.Errorf("%s: evicted %+v, told %v %+v, counted %v", want, w.asked, w.said, w.events, w.Counts())
		}
	}
}

// TestNextLeader checks that another leader evicts at once, within what the last one left of the budgets, and that
// nothing is evicted that the one after it would not count.
func TestNextLeader(t *testing.T) {
	w := newEvictions(t)
	w.Settings.PerOwner = 2
	w.round(anUID)
	if len(w.asked) != 1 || !strings.Contains(w.record.Data[ledgerKey], anUID) {
		t.Fatalf("evicted were %+v, recorded is %q", w.asked, w.record.Data)
	}
	next := func() {
		w.begin()
		w.Settings.PerOwner = 2
		w.round("")
		w.at += 3 * time.Second
	}
	next()
	w.lost = true
	w.round(anUID)
	if len(w.asked) != 1 {
		t.Fatalf("evicted without a record: %+v", w.asked)
	}
	w.lost = false
	w.at += time.Minute // a failure is tried again later
	w.round(anUID)
	w.round(anUID)
	if len(w.asked) != 2 {
		t.Fatalf("a new leader evicted %d pods, want one at once", len(w.asked)-1)
	}
	next()
	w.round(anUID)
	w.round(anUID)
	if len(w.asked) != 2 || w.said[len(w.said)-1] != string(evictbudget.OwnerSpent) {
		t.Errorf("a third leader evicted %d pods of an owner of two; said was %v", len(w.asked)-2, w.said)
	}
	w.record.Data[ledgerKey] = "nonsense"
	next()
	w.round(anUID)
	if len(w.asked) != 2 {
		t.Error("a leader that cannot read the record has full budgets")
	}
}

// TestNeverIsAPrivilege checks that a pod's own word keeps it only where the policy allows that.
func TestNeverIsAPrivilege(t *testing.T) {
	w := newEvictions(t)
	w.team = "shop"
	w.pod.Annotations = map[string]string{v1alpha1.AnnotationEvict: "never"}
	w.round(anUID)
	if len(w.asked) != 1 || w.Counts()[evictbudget.Evict] != 1 {
		t.Errorf("evicted were %+v, counted %v", w.asked, w.Counts())
	}
}

// TestSentences checks that there is something to say of each verdict.
func TestSentences(t *testing.T) {
	for _, v := range evictbudget.Verdicts() {
		if sentences[v] == "" {
			t.Errorf("nothing is said of %s", v)
		}
	}
}

// TestSlow: what was decided is not done when it has become old meanwhile, and counts against no budget.
func TestSlow(t *testing.T) {
	w := newEvictions(t)
	w.Settings.All = 1
	w.slow = maxDecisionAge + time.Second
	w.round(anUID)
	if w.slow = 0; len(w.asked) != 0 || w.Counts()[evictbudget.Late] != 1 {
		t.Errorf("evicted were %d, counted %v", len(w.asked), w.Counts())
	}
	w.round(anUID)
	if w.round(anUID); len(w.asked) != 1 {
		t.Errorf("afterwards evicted were %d, counted %v", len(w.asked), w.Counts())
	}
}

// TestEvictionRefused: what the API server says counts; a PodDisruptionBudget's no is told once, and it is asked later
// and later.
func TestEvictionRefused(t *testing.T) {
	causes := func(c metav1.CauseType) *metav1.StatusDetails {
		return &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: c}}, RetryAfterSeconds: 1}
	}
	for name, c := range map[string]struct {
		answer metav1.Status
		want   evictbudget.Verdict
	}{
		"a budget": {
			metav1.Status{
				Code: 429, Reason: metav1.StatusReasonTooManyRequests, Details: causes(policyv1.DisruptionBudgetCause),
			}, evictbudget.Waits,
		},
		"several budgets": {
			metav1.Status{
				Code: 500, Reason: metav1.StatusReasonInternalError,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
			}, evictbudget.Waits,
		},
		"too many requests": {
			metav1.Status{Code: 429, Reason: metav1.StatusReasonTooManyRequests, Details: causes("")}, evictbudget.Failed,
		},
		"another pod": {metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict}, evictbudget.Gone},
		"no rights":   {metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden}, evictbudget.Failed},
	} {
		w := newEvictions(t)
		w.answer = &c.answer
		for range 15 { // thirty seconds
			w.round(anUID)
		}
		want, asked := 2, len(w.asked)
		if c.want == evictbudget.Gone {
			want = 15
		}
		if asked != want || fmt.Sprint(w.said) != "["+string(c.want)+"]" || w.Counts()[evictbudget.Evict] != 0 {
			t.Errorf("%s: asked %d times, said %v, counted %v", name, asked, w.said, w.Counts())
		}
		if told := len(w.events); c.want == evictbudget.Waits && (told != 1 || w.events[0].Reason != reasonWaits) ||
			c.want != evictbudget.Waits && told != 0 {
			t.Errorf("%s: told was %+v", name, w.events)
		}
	}
}
