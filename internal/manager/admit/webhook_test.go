package admit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

const batchPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"job","labels":{"waterline.io/qos":"BE"}},
 "spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}},"fieldOfTomorrow":{"x":1}}]}}`

func request(operation admissionv1.Operation, object, old string) *admissionv1.AdmissionReview {
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "7", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "shop", Operation: operation,
			Object: runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(old)},
		},
	}
}

// post sends a request as the API server does and returns the response, which always admits.
func post(t *testing.T, w *Webhook, review *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, Path+"?timeout=10s", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	to := httptest.NewRecorder()
	w.ServeHTTP(to, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(to.Body.Bytes(), &answer); err != nil || to.Code != http.StatusOK {
		t.Fatalf("%d %s", to.Code, to.Body)
	}
	if answer.APIVersion != review.APIVersion || answer.Kind != review.Kind || answer.Response.UID != "7" ||
		!answer.Response.Allowed {
		t.Errorf("answer %s", to.Body)
	}
	if (answer.Response.Patch == nil) != (answer.Response.PatchType == nil) {
		t.Errorf("a patch without a type, or the reverse: %s", to.Body)
	}
	return answer.Response
}

// selling returns the rules where something is sold under Waterline's names, and labels alone select pods.
func selling() Rules { return Rules{Ours: true} }

func TestCreate(t *testing.T) {
	review := request(admissionv1.Create, batchPod, "null")
	dry := true
	for _, review.Request.DryRun = range []*bool{nil, &dry} {
		const want = `[{"op":"add","path":"/metadata/annotations","value":` +
			`{"waterline.io/batch-resources":"{\"containers\":{\"a\":{\"request\":{\"cpu\":1000}}}}"}},` +
			`{"op":"add","path":"/spec/priorityClassName","value":"waterline-batch"},` +
			`{"op":"add","path":"/spec/containers/0/resources/requests","value":{"waterline.io/batch-cpu":"1k"}},` +
			`{"op":"add","path":"/spec/containers/0/resources/limits","value":{"waterline.io/batch-cpu":"1k"}}]`
		answer := post(t, New(Options{Rules: selling}), review)
		if string(answer.Patch) != want || answer.AuditAnnotations["why"] != "ByLabel" {
			t.Errorf("got %s, %v", answer.Patch, answer.AuditAnnotations)
		}
	}
}

// TestUntouched lists requests whose pods stay as they are.
func TestUntouched(t *testing.T) {
	for name, change := range map[string]func(*admissionv1.AdmissionRequest){
		"delete":       func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete },
		"update":       func(r *admissionv1.AdmissionRequest) { r.Operation, r.OldObject = admissionv1.Update, r.Object },
		"subresource":  func(r *admissionv1.AdmissionRequest) { r.SubResource = "ephemeralcontainers" },
		"another kind": func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "PodTemplate" },
		"no object":    func(r *admissionv1.AdmissionRequest) { r.Object = runtime.RawExtension{} },
		"no pod":       func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"spec":7}`) },
		"no amount": func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = bytes.Replace(r.Object.Raw, []byte(`"1"`), []byte(`"x"`), 1)
		},
		"null": func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte("null") },
		"update from nothing": func(r *admissionv1.AdmissionRequest) {
			r.Operation = admissionv1.Update
		},
		"another system's pod": func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = bytes.Replace(r.Object.Raw, []byte("waterline.io/qos"), []byte("koordinator.sh/qosClass"), 1)
			r.Object.Raw = bytes.Replace(r.Object.Raw, []byte(`"cpu"`), []byte(`"kubernetes.io/batch-cpu"`), 1)
		},
		"online": func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = bytes.Replace(r.Object.Raw, []byte("BE"), []byte("LS"), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			review := request(admissionv1.Create, batchPod, "null")
			change(review.Request)
			if answer := post(t, New(Options{Rules: selling}), review); answer.Patch != nil {
				t.Errorf("patch %s", answer.Patch)
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	forged := strings.Replace(batchPod, `"labels"`, `"annotations":{"waterline.io/batch-resources":"{}"},"labels"`, 1)
	answer := post(t, New(Options{Rules: selling}), request(admissionv1.Update, forged, batchPod))
	const want = `[{"op":"remove","path":"/metadata/annotations/waterline.io~1batch-resources"}]`
	if string(answer.Patch) != want || len(answer.Warnings) != 1 {
		t.Errorf("got %s, %q", answer.Patch, answer.Warnings)
	}
}

// TestNamespaceLookupFails checks that no rule counts while the namespace of a pod cannot be read, as when it is
// younger than the informer's cache. Koordinator then treats the pod as if its profile matched.
func TestNamespaceLookupFails(t *testing.T) {
	plain := strings.Replace(batchPod, "waterline.io/qos", "app", 1)
	read := "" // the namespace
	for _, c := range []struct {
		name  string
		pod   string
		found *corev1.Namespace
		err   error
		why   Why
		read  string
	}{
		{"found", plain, optedIn("shop"), nil, ByPolicy, "shop"},
		{"an error", plain, nil, errors.New("not found"), NamespaceUnknown, "shop"},
		{"a namespace and an error", plain, optedIn("shop"), errors.New("stale"), NamespaceUnknown, "shop"},
		{"neither", plain, nil, nil, NamespaceUnknown, "shop"},
		{"not read for a labelled pod", batchPod, nil, errors.New("not found"), ByLabel, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			read = ""
			w := New(Options{
				Rules:     func() Rules { return everything(100) },
				Namespace: func(_ context.Context, name string) (*corev1.Namespace, error) { read = name; return c.found, c.err },
			})
			answer := post(t, w, request(admissionv1.Create, c.pod, "null"))
			if answer.AuditAnnotations["why"] != string(c.why) || read != c.read ||
				(answer.Patch != nil) != (c.why == ByPolicy || c.why == ByLabel) {
				t.Errorf("%v, read %q, %s", answer.AuditAnnotations, read, answer.Patch)
			}
		})
	}
	if answer := post(t, New(Options{Rules: func() Rules { return everything(100) }}),
		request(admissionv1.Create, plain, "null")); answer.Patch != nil {
		t.Errorf("without a lookup: %s", answer.Patch)
	}
}

func TestBadRequests(t *testing.T) {
	for _, c := range []struct {
		name, method, contentType, body string
		want                            int
	}{
		{"GET", http.MethodGet, "application/json", "", http.StatusMethodNotAllowed},
		{"YAML", http.MethodPost, "application/yaml", "{}", http.StatusUnsupportedMediaType},
		{"no content type", http.MethodPost, "", "{}", http.StatusUnsupportedMediaType},
		{"an empty object", http.MethodPost, "application/json; charset=utf-8", "{}", http.StatusBadRequest},
		{"an empty body", http.MethodPost, "application/json", "", http.StatusBadRequest},
		{"null", http.MethodPost, "application/json", "null", http.StatusBadRequest},
		{"another version", http.MethodPost, "application/json",
			`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}`, http.StatusBadRequest},
		{"no request", http.MethodPost, "application/json",
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest},
		{"a body that is too long", http.MethodPost, "application/json", strings.Repeat(" ", maxBody+1),
			http.StatusRequestEntityTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, Path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.contentType)
			to := httptest.NewRecorder()
			New(Options{Rules: selling}).ServeHTTP(to, r)
			if to.Code != c.want {
				t.Errorf("status %d, want %d", to.Code, c.want)
			}
		})
	}
	r := httptest.NewRequest(http.MethodPost, Path, io.MultiReader(strings.NewReader("{"), failing{}))
	r.Header.Set("Content-Type", "application/json")
	to := httptest.NewRecorder()
	New(Options{Rules: selling}).ServeHTTP(to, r)
	if to.Code != http.StatusBadRequest {
		t.Errorf("a broken body: %d", to.Code)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("reset") }

// FuzzReview sends arbitrary bodies. The response must be an AdmissionReview that admits.
func FuzzReview(f *testing.F) {
	for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
		body, err := json.Marshal(request(operation, batchPod, batchPod))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",
	 "request":{"kind":{"version":"v1","kind":"Pod"},"operation":"CREATE","object":{}}}`))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",
	 "request":{"kind":{"version":"v1","kind":"Pod"},"operation":"CREATE","object":
	 {"metadata":{"labels":{"waterline.io/qos":"BE"},"annotations":{"waterline.io/batch-resources":
	 "{\"pod\":{\"request\":{\"cpu\":-1}},\"containers\":{\"\":{\"limit\":{\"cpu\":9e18}}}}"}},
	 "spec":{"resources":{"requests":{"cpu":"1","memory":"1e400"}},"containers":[{},
	 {"resources":{"limits":{"memory":"-1","kubernetes.io/batch-cpu":"0.5"}}}]}}}}`))
	w := New(Options{
		Rules:     func() Rules { return everything(50) },
		Namespace: func(_ context.Context, name string) (*corev1.Namespace, error) { return optedIn(name), nil },
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := w.review(t.Context(), body)
		if err != nil {
			return
		}
		var out admissionv1.AdmissionReview
		if err := json.Unmarshal(answer, &out); err != nil || out.Response == nil || !out.Response.Allowed {
			t.Fatalf("%v: %s", err, answer)
		}
	})
}

// FuzzMutate checks the invariants of every mutation on arbitrary pods.
func FuzzMutate(f *testing.F) {
	f.Add([]byte(batchPod), true)
	f.Add([]byte(`{"metadata":{"labels":{"koordinator.sh/qosClass":"BE"}},
	 "spec":{"resources":{"requests":{"cpu":"7"}},"containers":[{"name":"a"},{"name":"b"}]}}`), false)
	f.Fuzz(func(t *testing.T, raw []byte, koordinator bool) {
		pod, err := readPod(raw, "shop")
		if err != nil || duplicates(pod) {
			return
		}
		rules := Rules{Ours: !koordinator, Koordinator: koordinator}
		after, o := rules.Mutate(pod, nil)
		check(t, pod, after, o, rules)
		if o.Why != ByLabel {
			return
		}
		if _, again := rules.Mutate(after, nil); again.Changed {
			t.Errorf("a second call changes %+v", after)
		}
		if strings.Contains(after.Annotations[v1alpha1.AnnotationBatchResources], "-") && len(containers(after)) == 0 {
			t.Error("a negative amount")
		}
	})
}

// duplicates reports whether two containers have the same name, which the API server refuses.
func duplicates(pod *corev1.Pod) bool {
	seen := map[string]bool{}
	for _, c := range containers(pod) {
		if seen[c.Name] {
			return true
		}
		seen[c.Name] = true
	}
	return false
}
