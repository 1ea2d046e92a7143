package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// resources are those whose objects tests read again and again, for which kubectl would need 0.16 s of CPU each time.
var resources = func() map[string]resourcePath {
	all := map[string]resourcePath{}
	add := func(group, one, many string, namespaced bool) {
		all[one], all[many] = resourcePath{group, many, namespaced}, resourcePath{group, many, namespaced}
	}
	add("/api/v1", "pod", "pods", true)
	add("/api/v1", "event", "events", true)
	add("/api/v1", "secret", "secrets", true)
	add("/api/v1", "configmap", "configmaps", true)
	add("/api/v1", "node", "nodes", false)
	add("/api/v1", "namespace", "namespaces", false)
	add("/apis/coordination.k8s.io/v1", "lease", "leases", true)
	add("/apis/waterline.io/v1alpha1", "nodereport", "nodereports", false)
	add("/apis/waterline.io/v1alpha1", "colocationpolicy", "colocationpolicies", false)
	add("/apis/waterline.io/v1alpha1", "workerpool", "workerpools", true)
	return all
}()

type resourcePath struct {
	group, name string
	namespaced  bool
}

// getter is a client of the cluster that is up.
var getter = sync.OnceValues(func() (*rest.RESTClient, error) {
	c, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		return nil, err
	}
	c.QPS = -1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme.Scheme)
	return rest.UnversionedRESTClientFor(c)
})

// object reads an object or a list of the API. The arguments are those of kubectl get: a resource, a name, -n, -A, -l
// and --field-selector.
func object[T any](t testing.TB, args ...string) T {
	t.Helper()
	r, found := resources[args[0]]
	if !found {
		return decoded[T](t, []byte(kubectl(t, append([]string{"get", "-o", "json"}, args...)...)))
	}
	client, err := getter()
	if err != nil {
		t.Fatal(err)
	}
	namespace, name, query := "default", "", url.Values{}
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-A":
			namespace = ""
		case "-n":
			i++
			namespace = args[i]
		case "-l":
			i++
			query.Set("labelSelector", args[i])
		case "--field-selector":
			i++
			query.Set("fieldSelector", args[i])
		default:
			name = args[i]
		}
	}
	at := r.group
	if r.namespaced && namespace != "" {
		at = path.Join(at, "namespaces", namespace)
	}
	request := client.Get().AbsPath(path.Join(at, r.name, name))
	for key, values := range query {
		request.Param(key, values[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also when a test cleans up
	defer cancel()
	content, err := request.DoRaw(ctx)
	if err != nil {
		t.Fatalf("getting %q: %v", args, err)
	}
	return decoded[T](t, content)
}

func decoded[T any](t testing.TB, content []byte) (o T) {
	t.Helper()
	if err := json.Unmarshal(content, &o); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, content))
	}
	return o
}
