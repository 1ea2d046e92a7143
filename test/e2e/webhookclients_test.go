package e2e_test

import (
	"crypto/tls"
	"net/http"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/test/bed/cluster"
)

// TestAPIWebhookClients has the webhook ask for a certificate, which the API server presents. Nobody else is answered,
// and an API server with another name is not: its pods are admitted unchanged.
func TestAPIWebhookClients(t *testing.T) {
	m := newManaged(t)
	config, err := clientcmd.LoadFromFile(bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	admin := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	own, err := tls.LoadX509KeyPair(admin.ClientCertificate, admin.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	ca := "--webhook-client-ca=" + config.Clusters["bed"].CertificateAuthority
	asks := func(certificates ...tls.Certificate) error {
		client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates},
		}}
		answer, err := client.Get("https://" + webhookAddress() + "/mutate-pods")
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	manager := m.manager(ca, "--webhook-client-names=other,"+cluster.WebhookUser)
	m.answering()
	if err := asks(); err == nil {
		t.Error("a client without a certificate is answered")
	}
	if err := asks(own); err == nil {
		t.Error("a client with a certificate for another name is answered")
	}
	manager.stop(syscall.SIGTERM)
	manager = m.manager(ca)
	m.answering()
	if err := asks(own); err != nil {
		t.Errorf("a client of the authority: %v", err)
	}
	if err := asks(); err == nil {
		t.Error("a client without a certificate is answered")
	}
	manager.stop(syscall.SIGTERM)
	m.manager(ca, "--webhook-client-names=other")
	eventually(t, "the manager is ready", func() (bool, string) {
		answer, err := http.Get("http://" + managerAddress() + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		return answer.StatusCode == http.StatusOK, answer.Status
	})
	pod, out := m.try("default", `metadata: {name: probe, labels: {waterline.io/qos: BE}}, spec: {containers: `+
		`[{name: c, image: none, resources: {requests: {cpu: 1}}}]}`, "--dry-run=server")
	if pod == nil || pod.Spec.PriorityClassName != "" {
		t.Errorf("the API server has another name: %s", out)
	}
}
