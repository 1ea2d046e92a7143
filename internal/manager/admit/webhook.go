package admit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Path is the URL path of the webhook.
const Path = "/mutate-pods"

// maxBody is the length of the longest request that is read, in bytes. A request has two objects of at most 3 MiB each.
const maxBody = 7 << 20

// Bounds of what is in work at a time. Everybody in the cluster can reach the webhook, and the body of a request is in
// memory until it is answered. The rest waits for a while, and is refused then: the API server admits such a pod
// unchanged. Requests for large objects, which are rare, do not keep others waiting.
const (
	smallBody  = 256 << 10
	maxSmall   = 64
	maxLarge   = 3
	waitWithin = 2 * time.Second
	readWithin = 5 * time.Second // the API server sends a request at once
)

// begin waits until a request may be read. done ends its work.
func (w *Webhook) begin(r *http.Request) (done func(), err error) {
	slots := w.large
	if w.most(r) == smallBody {
		slots = w.small
	}
	patience := time.NewTimer(waitWithin)
	defer patience.Stop()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-r.Context().Done():
	case <-patience.C:
	}
	return nil, fmt.Errorf("%d requests of this size are being processed; try again", cap(slots))
}

// most returns how many bytes of a request are read at most: one that does not say its length is a large one.
func (w *Webhook) most(r *http.Request) int64 {
	if r.ContentLength >= 0 && r.ContentLength <= smallBody {
		return smallBody
	}
	return maxBody
}

// Options are the dependencies of a [Webhook].
type Options struct {
	// Rules returns the present rules, which are not changed. It is called for each pod, concurrently.
	Rules func() Rules
	// Namespace returns a namespace. It is called only for pods that a rule may select. Nil: no rule counts.
	Namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	// Count is called with the reason for each new pod, concurrently. Nil: not called.
	Count func(Why)
	// Log receives errors of reading. Nil: they are discarded.
	Log *slog.Logger
}

// Webhook serves the API server, which calls it for pods that are created and for pods whose annotation
// waterline.io/batch-resources is changed. It refuses no pod and has no side effects, so a dry run is like any other
// request.
//
// Register it for pods with reinvocationPolicy IfNeeded and sideEffects None: for CREATE, and for UPDATE where a
// matchCondition finds that the annotation differs between object and oldObject, so that other updates do not call it.
type Webhook struct {
	options      Options
	small, large chan struct{} // full while as many requests are in work as may be
}

// New returns a webhook.
func New(o Options) *Webhook {
	if o.Rules == nil {
		o.Rules = func() Rules { return Rules{} }
	}
	if o.Count == nil {
		o.Count = func(Why) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Webhook{options: o, small: make(chan struct{}, maxSmall), large: make(chan struct{}, maxLarge)}
}

// ServeHTTP answers a request to [Path].
func (w *Webhook) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		to.Header().Set("Allow", http.MethodPost)
		http.Error(to, "POST an AdmissionReview", http.StatusMethodNotAllowed)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(to, "send the AdmissionReview as application/json", http.StatusUnsupportedMediaType)
		return
	}
	done, err := w.begin(r)
	if err != nil {
		to.Header().Set("Retry-After", "1")
		http.Error(to, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer done()
	// A body that does not arrive holds memory. Not every connection has deadlines: those of tests have none.
	_ = http.NewResponseController(to).SetReadDeadline(time.Now().Add(readWithin))
	body, err := io.ReadAll(http.MaxBytesReader(to, r.Body, w.most(r)))
	if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
		http.Error(to, err.Error(), http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := w.review(r.Context(), body)
	if err != nil {
		w.options.Log.Warn("an admission request cannot be read", "error", err)
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	to.Header().Set("Content-Type", "application/json")
	if _, err := to.Write(answer); err != nil {
		w.options.Log.Warn("an admission response was not sent", "error", err)
	}
}

// review returns the response to an AdmissionReview. The error is that of a body that is no AdmissionReview. A pod that
// cannot be read is admitted unchanged: the API server decides whether it is a pod at all.
func (w *Webhook) review(ctx context.Context, body []byte) ([]byte, error) {
	var in admissionv1.AdmissionReview
	if err := utiljson.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("reading the AdmissionReview: %w", err)
	}
	if in.APIVersion != admissionv1.SchemeGroupVersion.String() || in.Kind != "AdmissionReview" || in.Request == nil {
		return nil, fmt.Errorf("reading the AdmissionReview: apiVersion %q, kind %q, with a request: %v; "+
			"send %s, AdmissionReview and a request",
			in.APIVersion, in.Kind, in.Request != nil, admissionv1.SchemeGroupVersion)
	}
	out := admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: w.answer(ctx, in.Request)}
	encoded, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("writing the AdmissionReview: %w", err)
	}
	return encoded, nil
}

func (w *Webhook) answer(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	log := w.options.Log.With("namespace", request.Namespace, "name", request.Name, "uid", request.UID)
	if request.Kind != (metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}) || request.SubResource != "" {
		return response
	}
	pod, err := readPod(request.Object.Raw, request.Namespace)
	if err != nil {
		log.Warn("a pod is admitted unchanged", "error", err)
		return response
	}
	var after *corev1.Pod
	var o Outcome
	switch request.Operation {
	case admissionv1.Create:
		after, o = w.create(ctx, log, pod)
		w.options.Count(o.Why)
		response.AuditAnnotations = map[string]string{"why": string(o.Why)}
		if o.Policy != "" {
			response.AuditAnnotations["policy"] = o.Policy
		}
	case admissionv1.Update:
		old, err := readPod(request.OldObject.Raw, request.Namespace)
		if err != nil {
			log.Warn("an update of a pod is admitted unchanged", "error", err)
			return response
		}
		after, o = Keep(old, pod)
	default:
		return response
	}
	response.Warnings = o.Warnings
	if !o.Changed {
		return response
	}
	steps, err := patch(pod, after)
	if err != nil {
		log.Error("a pod is admitted unchanged", "error", err)
		return response
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = steps, &kind
	return response
}

// create mutates a new pod. It reads the pod's namespace only if a rule may select the pod.
func (w *Webhook) create(ctx context.Context, log *slog.Logger, pod *corev1.Pod) (*corev1.Pod, Outcome) {
	rules := w.options.Rules()
	after, o := rules.Mutate(pod, nil)
	if o.Why != NamespaceUnknown || w.options.Namespace == nil {
		return after, o
	}
	namespace, err := w.options.Namespace(ctx, pod.Namespace)
	if err != nil || namespace == nil {
		log.Warn("no policy makes this pod batch, because its namespace cannot be read", "error", err)
		return after, o
	}
	return rules.Mutate(pod, namespace)
}

// readPod reads a pod. A pod that is being created may lack the namespace, which is then the request's.
func readPod(raw []byte, namespace string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := utiljson.Unmarshal(raw, pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if pod.Namespace == "" {
		pod.Namespace = namespace
	}
	return pod, nil
}
