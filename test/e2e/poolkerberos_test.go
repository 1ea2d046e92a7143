package e2e_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestKerberosPool drains a real NodeManager whose web services have https and ask for Kerberos. The manager must read
// from them which containers run: it asks by name, because the certificate and the principal have the name, and
// connects to the address of the pod. A container that runs longer than drain.grace ends by itself.
func TestKerberosPool(t *testing.T) {
	if !*kerberos {
		t.Skip("the cluster is without Kerberos; -kerberos starts one with it")
	}
	const name = "kerberos"
	site, sslServer, err := hadoopBed.SecureWorkers(poolHost(name, name+"-0"))
	if err != nil {
		t.Fatal(err)
	}
	y := liveYard(t)
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"ssl-server.xml": sslServer}})
	if err != nil {
		t.Fatal(err)
	}
	status := y.request(http.MethodPatch, "/api/v1/namespaces/"+poolNamespace+"/configmaps/hadoop", string(patch))
	if status != http.StatusOK {
		t.Fatalf("giving workers their ssl-server.xml: status %d", status)
	}
	y.liveSecret(t, name)
	l := y.live(t, name, 1, 5*time.Second, 2*time.Minute)
	y.liveManager("--identity=" + name)
	properties, err := json.Marshal(site)
	if err != nil {
		t.Fatal(err)
	}
	l.create(", authSecret: {name: "+name+"}, containerExecutor: Default, excludeFile: exclude.xml, properties: "+
		string(properties),
		", drain: {grace: 5s, timeout: 2m}, identity: {coolDown: 1s}")
	y.active(t, name, 1)
	l.grown(full)
	l.sleepers(1, 512, 25*time.Second)
	l.containers(1)
	kubectl(t, "delete", "workerpool", name, "-n", poolNamespace, "--wait=false")
	eventually(t, "the pool drains and goes", func() (bool, string) {
		out, err := tryKubectl("get", "workerpool", name, "-n", poolNamespace, "--ignore-not-found", "-o", "json")
		if err != nil || out == "" {
			return err == nil, out
		}
		p := decoded[v1alpha1.WorkerPool](t, []byte(out))
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionNMUnreachable); c != nil {
			t.Fatalf("the manager cannot list containers: %s", c.Message)
		}
		return false, ""
	})
	if j := l.unharmed(); j.inTime > 0 || j.started == 0 {
		t.Errorf("of %d containers, %d were killed", j.started, j.inTime)
	}
}

// liveSecret makes the Secret with which the manager logs in at the real cluster.
func (y *yard) liveSecret(t *testing.T, name string) {
	t.Helper()
	o, err := hadoopBed.HTTPOptions(hadoop.Admin)
	if err != nil {
		t.Fatal(err)
	}
	k := o.Auth.Kerberos
	secret := &corev1.Secret{Data: map[string][]byte{
		"principal": []byte(k.Principal), "keytab": k.Keytab, "krb5.conf": k.Config, "service": []byte(k.Service),
		"ca.crt": o.CA,
	}}
	secret.Name = name
	err = y.core.Post().Namespace(poolNamespace).Resource("secrets").Body(secret).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
}
