package web

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/poll"
)

// api is an API server with the objects of one cluster, as far as the dashboard asks for them.
type api struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	away     bool                // every answer is an error
	users    map[string][]string // by token: rights such as "list nodereports", "list pods in shop", "get nodereports n1"
	reviews  int                 // of tokens
	asked    []string            // rights
	reports  map[string]*v1alpha1.NodeReport
	policies []v1alpha1.ColocationPolicy
	pools    []v1alpha1.WorkerPool
	pods     []corev1.Pod
	events   [][]byte               // of reports, all so far: event i gives the resource version i+2
	watchers map[chan []byte]string // by events: the resource
}

// Tokens of the tests, and what they may.
const (
	adminToken  = "admin"
	viewerToken = "viewer" // nodes, and the pods of one namespace
	otherToken  = "other"  // nothing
)

func newAPI(t *testing.T) *api {
	a := &api{t: t, reports: map[string]*v1alpha1.NodeReport{}, watchers: map[chan []byte]string{}}
	a.users = map[string][]string{
		adminToken: {"list nodereports", "get nodereports", "list colocationpolicies", "list pods",
			"list workerpools in batch"},
		viewerToken: {"list nodereports", "get nodereports", "list pods in shop"},
		otherToken:  nil,
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

// server returns a dashboard that follows the API, when it knows all nodes.
func (a *api) server(now func() time.Time) *Server {
	a.t.Helper()
	config := &rest.Config{Host: a.url, QPS: -1, ContentConfig: rest.ContentConfig{
		ContentType: "application/json", AcceptContentTypes: "application/json"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		a.t.Fatal(err)
	}
	custom, err := kube.NewCustomClient(config)
	if err != nil {
		a.t.Fatal(err)
	}
	s := New(Options{Client: client, Custom: custom, PoolNamespaces: []string{"batch", "night"}, Version: "v1.2.3",
		Now: now, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	done := make(chan struct{})
	go func() { defer close(done); s.Run(a.t.Context()) }()
	a.t.Cleanup(func() { <-done })
	if !poll.Until(3*time.Minute, 5*time.Millisecond, func() bool {
		return s.reports.Listed() && s.policies.Listed() && s.pools["batch"].Listed()
	}) {
		a.t.Fatal("the dashboard does not list the API's objects")
	}
	return s
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case a.away:
		status(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case kind == "tokenreviews":
		a.reviewToken(w, r)
	case kind == "subjectaccessreviews":
		a.reviewAccess(w, r)
	case r.URL.Query().Get("sendInitialEvents") == "true":
		status(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid) // the client lists instead
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r, kind)
	case kind == "nodereports":
		list := v1alpha1.NodeReportList{TypeMeta: kindOf("NodeReportList"),
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(1 + len(a.events))}}
		for _, r := range a.reports {
			list.Items = append(list.Items, *r)
		}
		write(w, list)
	case strings.Contains(r.URL.Path, "/nodereports/"):
		if found := a.reports[kind]; found != nil {
			write(w, found)
			return
		}
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case kind == "colocationpolicies":
		write(w, v1alpha1.ColocationPolicyList{
			TypeMeta: kindOf("ColocationPolicyList"), ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: a.policies})
	case kind == "workerpools":
		list := v1alpha1.WorkerPoolList{TypeMeta: kindOf("WorkerPoolList"), ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for _, p := range a.pools {
			if strings.Contains(r.URL.Path, "/namespaces/"+p.Namespace+"/") {
				list.Items = append(list.Items, p)
			}
		}
		write(w, list)
	case kind == "pods":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for _, p := range a.pods {
			if r.URL.Query().Get("fieldSelector") == "spec.nodeName="+p.Spec.NodeName {
				list.Items = append(list.Items, p)
			}
		}
		write(w, list)
	default:
		a.t.Errorf("the dashboard asks for %s", r.URL)
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

func (a *api) reviewToken(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		a.t.Error(err)
	}
	a.reviews++
	if _, known := a.users[review.Spec.Token]; known {
		review.Status = authenticationv1.TokenReviewStatus{
			Authenticated: true, User: authenticationv1.UserInfo{Username: review.Spec.Token, Groups: []string{"people"}},
		}
	}
	write(w, review)
}

func (a *api) reviewAccess(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		a.t.Error(err)
	}
	of := review.Spec.ResourceAttributes
	asked := of.Verb + " " + of.Resource
	if of.Namespace != "" {
		asked += " in " + of.Namespace
	}
	a.asked = append(a.asked, review.Spec.User+": "+asked)
	review.Status.Allowed = slices.Contains(a.users[review.Spec.User], asked) &&
		slices.Equal(review.Spec.Groups, []string{"people"})
	write(w, review)
}

// watch sends the events after the client's resource version, until the client leaves.
func (a *api) watch(w http.ResponseWriter, r *http.Request, kind string) {
	events := make(chan []byte, 10_000)
	a.watchers[events] = kind
	if version, err := strconv.Atoi(r.URL.Query().Get("resourceVersion")); err == nil && kind == "nodereports" {
		for _, event := range a.events[max(version, 1)-1:] {
			events <- event
		}
	}
	a.mu.Unlock()
	defer a.mu.Lock()
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			_, _ = w.Write(event)
			_ = flush.Flush()
		}
	}
}

// change sends an event about a report, after a change of it.
func (a *api) change(what, name string, change func(*v1alpha1.NodeReport)) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	report := a.reports[name]
	if report == nil {
		report = &v1alpha1.NodeReport{
			TypeMeta:   kindOf("NodeReport"),
			ObjectMeta: metav1.ObjectMeta{Name: name}}
		a.reports[name] = report
	}
	change(report)
	report.ResourceVersion = strconv.Itoa(2 + len(a.events))
	event, err := json.Marshal(map[string]any{"type": what, "object": report})
	if err != nil {
		a.t.Fatal(err)
	}
	if what == "DELETED" {
		delete(a.reports, name)
	}
	a.events = append(a.events, event)
	for events, kind := range a.watchers {
		if kind == "nodereports" {
			events <- event
		}
	}
}

func kindOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: kind}
}

func write(w http.ResponseWriter, value any) { _ = json.NewEncoder(w).Encode(value) }

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	write(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason})
}

// populate makes the objects of a cluster whose nodes are in every state.
func (a *api) populate(nodes int, now time.Time) {
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		a.reports[name] = &v1alpha1.NodeReport{
			TypeMeta:   kindOf("NodeReport"),
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: statusOf(i, now),
		}
	}
	a.policies = []v1alpha1.ColocationPolicy{policyOf("web-nodes", nodes*7/10, now), policyOf("default", nodes*3/10, now)}
	a.policies[1].Spec = v1alpha1.ColocationPolicySpec{Mode: "Observe", Priority: -1000}
	a.policies[1].Status.Nodes.Enforcing, a.policies[1].Status.Nodes.Offering = 0, 0
	a.pools = []v1alpha1.WorkerPool{poolOf(min(nodes, 6), now)}
	a.pods = podsOf("node-0000")
}

// use is the usage of node i at a time of the day: online in per mille of its capacity, and batch of what is left.
func use(i int, at time.Time) (online, batch float64) {
	hour := float64(at.Hour()) + float64(at.Minute())/60
	day := 0.5 - 0.5*math.Cos((hour-4)/24*2*math.Pi)
	own := math.Mod(float64(i)*0.618034, 1)
	wave := 0.04 * math.Sin(float64(at.Unix())/1500+9*own)
	online = 0.08 + 0.16*own + (0.12+0.22*own)*day + wave
	return online, 0.35 + 0.5*math.Mod(float64(i)*0.7548776, 1) + wave
}

func statusOf(i int, now time.Time) v1alpha1.NodeReportStatus {
	const capacity = 64.0
	online, share := use(i, now)
	system := 0.04
	ceiling := 0.65
	if i%10 >= 7 {
		ceiling = 0.5
	}
	left := max(ceiling-online-system, 0)
	cores := func(part float64) resource.Quantity {
		return *resource.NewMilliQuantity(int64(1000*capacity*part), resource.DecimalSI)
	}
	bytes := func(part float64) resource.Quantity {
		return *resource.NewQuantity(int64(part*256)<<30, resource.BinarySI)
	}
	used, allowance := cores(left*share), cores(left)
	changed := metav1.NewTime(now.Add(-time.Duration(i%600) * time.Second))
	s := v1alpha1.NodeReportStatus{
		Policy: "web-nodes", PolicyGeneration: 3, Mode: "Enforce", Selling: "Open", HarmSignal: "RunQueueDelay",
		Changed:  &changed,
		Pressure: &v1alpha1.PressureReport{CPU: int32(600 * online * online), Memory: int32(i % 9), IO: int32(i % 23)},
		CPU: &v1alpha1.ResourceReport{
			Capacity: cores(1), Ceiling: cores(ceiling), System: cores(system), Online: cores(online), Batch: &used,
			Allowance: allowance,
			Offer:     v1alpha1.TierQuantities{Batch: cores(left * 0.9)}, Bound: v1alpha1.TierQuantities{Batch: cores(left * min(0.9, 1.12*share))},
			Peaks:  v1alpha1.PeakQuantities{Hour: cores(online * 1.1), Day: cores(online * 1.4)},
			Reason: "SoldPredicted",
		},
	}
	batchMemory := bytes(0.1 + 0.2*share)
	s.Memory = &v1alpha1.ResourceReport{
		Capacity: bytes(1), Ceiling: bytes(0.8), System: bytes(0.05), Online: bytes(0.2 + 0.5*online), Batch: &batchMemory,
		Allowance: bytes(0.4), Offer: v1alpha1.TierQuantities{Batch: bytes(0.35)},
		Bound: v1alpha1.TierQuantities{Batch: bytes(0.12)}, Reason: "SoldPredicted",
		Peaks: v1alpha1.PeakQuantities{Hour: bytes(0.5), Day: bytes(0.6)},
	}
	lost := metav1.Condition{Type: v1alpha1.ConditionWithdrawn, Status: metav1.ConditionTrue, Reason: "AgentLost",
		Message: "No agent has been ready on the node for 60 s.", LastTransitionTime: changed}
	switch {
	case i%10 >= 7:
		s.Policy, s.Mode, s.Selling = "default", "Observe", ""
		s.CPU.Offer, s.CPU.Bound, s.CPU.Batch = v1alpha1.TierQuantities{}, v1alpha1.TierQuantities{}, &resource.Quantity{}
		s.CPU.Reason = "NotSold"
	case i%97 == 13:
		s.Conditions = []metav1.Condition{lost}
	case i%53 == 11:
		s.Hot = "MemoryExhausted"
	case i%41 == 5:
		s.Selling = "Draining"
	case i%211 == 31:
		old := metav1.NewTime(now.Add(-2 * time.Hour))
		s.Changed = &old
	case i%89 == 21:
		s.CPU.Offer, s.Memory.Offer = v1alpha1.TierQuantities{}, v1alpha1.TierQuantities{}
		s.CPU.Reason = "SlackNone"
	}
	if i == 0 {
		s.CPUSets = &v1alpha1.CPUSetReport{MaxExclusive: 27, NUMANodes: []v1alpha1.NUMANodeCPUs{
			{ID: 0, Free: "4-15,36-47", Cores: []string{"0-15/32-47"}}, {ID: 1, Free: "16-27,31,48-59,63", Cores: []string{"16-31/48-63"}},
		}}
		s.Unsupported = []string{"NoMemoryProtection"}
	}
	return s
}

func policyOf(name string, nodes int, now time.Time) v1alpha1.ColocationPolicy {
	return v1alpha1.ColocationPolicy{
		TypeMeta:   kindOf("ColocationPolicy"),
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3, CreationTimestamp: metav1.NewTime(now.Add(-72 * time.Hour))},
		Spec: v1alpha1.ColocationPolicySpec{
			Mode: "Enforce", Priority: 10, CPU: &v1alpha1.CPUSpec{Waterline: "65%", Method: "Predicted"},
			Memory: &v1alpha1.MemorySpec{Waterline: "80%"},
			Windows: []v1alpha1.WindowSpec{{Name: "night", Start: "22:00", End: "08:00", TimeZone: "Europe/Berlin",
				DrainBefore: &metav1.Duration{Duration: 15 * time.Minute}}},
		},
		Status: v1alpha1.ColocationPolicyStatus{
			ObservedGeneration: 3, SlippedPods: 2, Nodes: v1alpha1.NodeCounts{Selected: int32(nodes), Governed: int32(nodes),
				Enforcing: int32(nodes), Offering: int32(nodes * 9 / 10)},
			Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "AllNodesFollow",
				Message: fmt.Sprintf("All %d governed nodes follow the policy.", nodes), LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
				{Type: "Overlaps", Status: "False", Reason: "NoOverlap", Message: "No other policy selects the same nodes.",
					LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}},
		},
	}
}

func poolOf(workers int, now time.Time) v1alpha1.WorkerPool {
	amount := func(mebi, vcores int64) v1alpha1.YARNResources {
		return v1alpha1.YARNResources{Memory: *resource.NewQuantity(mebi<<20, resource.BinarySI), VCores: vcores}
	}
	p := v1alpha1.WorkerPool{
		TypeMeta:   kindOf("WorkerPool"),
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "nightly"},
		Spec:       v1alpha1.WorkerPoolSpec{YARN: &v1alpha1.YARNSpec{}},
		Status: v1alpha1.WorkerPoolStatus{Wanted: int32(workers), Active: int32(max(workers-1, 0)), Leaving: 1,
			Total: amount(int64(workers)*24576, int64(workers)*12), Used: amount(int64(workers)*18432, int64(workers)*9),
			Containers: int32(workers) * 9, Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "WorkersActive",
				Message: "The workers that should run do.", LastTransitionTime: metav1.NewTime(now)}}},
	}
	for i := range workers {
		phase, reason := "Active", ""
		if i == 0 {
			phase, reason = "Draining", "ContainersRunning"
		}
		total := amount(24576, 12)
		p.Status.Workers = append(p.Status.Workers, v1alpha1.WorkerStatus{Name: fmt.Sprintf("nightly-%d", i),
			Node: fmt.Sprintf("node-%04d", i), Phase: v1alpha1.WorkerPhase(phase), Reason: reason,
			Since: metav1.NewTime(now.Add(-time.Hour)), Total: &total, Containers: 9})
	}
	return p
}

func podsOf(node string) (all []corev1.Pod) {
	add := func(namespace, name, class, cpu string, annotations map[string]string, conditions ...corev1.PodCondition) {
		requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse("4Gi")}
		labels := map[string]string{}
		if class != "" {
			labels[v1alpha1.LabelQoS] = class
		}
		if class == "BE" {
			requests = corev1.ResourceList{v1alpha1.ResourceBatchCPU: resource.MustParse(cpu + "000"),
				v1alpha1.ResourceBatchMemory: resource.MustParse("8Gi")}
		}
		all = append(all, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf(
				"0a1b2c3d-0000-4000-8000-%012d", len(all))), Labels: labels, Annotations: annotations},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c",
				Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: conditions},
		})
	}
	cpus := func(list string) corev1.PodCondition {
		return corev1.PodCondition{Type: v1alpha1.ConditionCPUSet, Status: corev1.ConditionTrue, Reason: "CPUsExclusive",
			Message: list}
	}
	add("shop", "checkout-7d9f", "LSE", "3", nil, cpus("28-30,60-62"))
	add("shop", "search-0", "LSR", "2", nil, corev1.PodCondition{Type: v1alpha1.ConditionCPUSet,
		Status: corev1.ConditionFalse, Reason: "CPUsTaken", Message: "requested 2, free 1"})
	add("shop", "web-6bb5-x2x", "", "4", map[string]string{v1alpha1.AnnotationCPUShare: "10240"})
	add("media", "transcode-17", "BE", "8", nil)
	add("media", "transcode-18", "BE", "6", nil)
	add("batch", "nightly-0", "BE", "12", nil)
	add("kube-system", "node-exporter-b7", "SYSTEM", "1", nil)
	return all
}
