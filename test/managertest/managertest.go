// Package managertest has what tests of the manager's packages share.
package managertest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// Serve returns clients of an API server that answers like this: for the core API groups and for Waterline's.
func Serve(t *testing.T, api http.Handler) (kubernetes.Interface, rest.Interface) {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	custom, err := kube.NewCustomClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, custom
}

// Policy returns a policy in mode Enforce, with a UID by its name, after a change of its spec.
func Policy(name string, generation int64, change func(*v1alpha1.ColocationPolicySpec)) *v1alpha1.ColocationPolicy {
	p := &v1alpha1.ColocationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation, UID: types.UID("uid-" + name)},
	}
	p.Spec.Mode = v1alpha1.ModeEnforce
	change(&p.Spec)
	return p
}

// Add adds objects to a table.
func Add(t *testing.T, table interface{ Add(any) error }, objects ...any) {
	t.Helper()
	for _, o := range objects {
		if err := table.Add(o); err != nil {
			t.Fatal(err)
		}
	}
}
