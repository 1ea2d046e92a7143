package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/waterline-io/waterline/test/poll"
)

const (
	namespace = "waterline-system"
	name      = "webhook-certs"
	dns       = "waterline-webhook.waterline-system.svc"
	webhooks  = "waterline"
)

// cluster is an API server, a clock, and a webhook configuration of two webhooks.
type cluster struct {
	t      *testing.T
	server *apiServer
	client kubernetes.Interface
	now    atomic.Int64
}

func newCluster(t *testing.T) *cluster {
	server, client := start(t)
	c := &cluster{t: t, server: server, client: client}
	c.now.Store(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).Unix())
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(),
		&admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: webhooks}, Webhooks: []admissionv1.MutatingWebhook{
				{Name: "a.waterline.io"}, {Name: "b.waterline.io"},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) clock() time.Time { return time.Unix(c.now.Load(), 0) }

func (c *cluster) sleep(d time.Duration) { c.now.Add(int64(d / time.Second)) }

func (c *cluster) replica() *Certs {
	return New(Options{
		Client: c.client, Namespace: namespace, Secret: name, Names: []string{dns}, Webhooks: []string{webhooks},
		Now: c.clock,
	})
}

func (c *cluster) sync(all ...*Certs) {
	c.t.Helper()
	for _, r := range all {
		if err := r.Sync(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
}

// trust is what API servers trust, the same for all webhooks.
func (c *cluster) trust() []byte {
	c.t.Helper()
	got, err := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(c.t.Context(), webhooks,
		metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if a, b := got.Webhooks[0].ClientConfig.CABundle, got.Webhooks[1].ClientConfig.CABundle; !bytes.Equal(a, b) {
		c.t.Errorf("the webhooks trust %s and %s", a, b)
	}
	return got.Webhooks[0].ClientConfig.CABundle
}

// call is what an API server does that trusts somebody: an error means that it refused the replica.
func (c *cluster) call(trust []byte, r *Certs) error {
	cert, err := r.GetCertificate(nil)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trust) {
		return errors.New("nobody is trusted")
	}
	_, err = cert.Leaf.Verify(x509.VerifyOptions{DNSName: dns, Roots: roots, CurrentTime: c.clock()})
	return err
}

func (c *cluster) remove(path string) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.objects, path)
}

const secretPath = "/api/v1/namespaces/" + namespace + "/secrets/" + name

// TestYears lets four years pass a quarter of a day at a time. At each moment every replica is accepted, also by an API
// server that has not learnt of any news for the last quarter of a day.
func TestYears(t *testing.T) {
	c := newCluster(t)
	a, b := c.replica(), c.replica()
	c.sync(a, b)
	stale := c.trust()
	authorities, leaves := map[string]bool{}, map[string]bool{}
	const day = 24 * time.Hour
	years, pause := 4, day/4
	if testing.Short() {
		years, pause = 2, day
	}
	for step := range years * 366 * int(day/pause) {
		c.sleep(pause)
		if step%2 == 0 {
			c.sync(a, b)
		} else {
			c.sync(b, a)
		}
		trust := c.trust()
		for _, r := range []*Certs{a, b} {
			for _, known := range [][]byte{stale, trust} {
				if err := c.call(known, r); err != nil {
					t.Fatalf("%s: %v", c.clock(), err)
				}
			}
			leaf, _ := r.GetCertificate(nil)
			leaves[leaf.Leaf.SerialNumber.String()] = true
			if left := leaf.Leaf.NotAfter.Sub(c.clock()); left < servingLife/4 {
				t.Fatalf("%s: %s left", c.clock(), left)
			}
		}
		authorities[string(trust)] = true
		stale = trust
	}
	if len(leaves) < 5*years || len(leaves) > 15*years/2 || len(authorities) < years || len(authorities) > 3*years {
		t.Errorf("%d serving certificates, %d lists of authorities", len(leaves), len(authorities))
	}
}

// TestQuiet checks that nothing is written while nothing is due.
func TestQuiet(t *testing.T) {
	c := newCluster(t)
	a, b := c.replica(), c.replica()
	c.sync(a, b)
	before := c.server.writes
	for range 50 {
		c.sleep(time.Hour)
		c.sync(a, b)
	}
	if c.server.writes != before {
		t.Errorf("%d writes", c.server.writes-before)
	}
	if !a.Ready() || !b.Ready() {
		t.Error("not ready")
	}
}

// TestOnlyTrust has a webhook configuration with fields that no type of this version knows. The manager writes caBundle
// and nothing else, and only for webhooks whose caBundle differs.
func TestOnlyTrust(t *testing.T) {
	c := newCluster(t)
	const at = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + webhooks
	object := c.server.objects[at]
	object["ofTomorrow"] = "a"
	all := object["webhooks"].([]any)
	for _, w := range all {
		w.(map[string]any)["ofTomorrow"] = "b"
		w.(map[string]any)["clientConfig"] = map[string]any{"url": "https://192.0.2.1/", "ofTomorrow": "c"}
	}
	a := c.replica()
	c.sync(a)
	trust := base64.StdEncoding.EncodeToString(c.trust())
	want := []any{}
	for _, name := range []string{"a.waterline.io", "b.waterline.io"} {
		client := map[string]any{"url": "https://192.0.2.1/", "ofTomorrow": "c", "caBundle": trust}
		want = append(want, map[string]any{"name": name, "admissionReviewVersions": nil, "sideEffects": nil,
			"ofTomorrow": "b", "clientConfig": client})
	}
	object = c.server.objects[at]
	if d := cmp.Diff(want, object["webhooks"]); d != "" || object["ofTomorrow"] != "a" {
		t.Errorf("the configuration is %v (-want +got):\n%s", object, d)
	}
	second := object["webhooks"].([]any)[1].(map[string]any)
	second["clientConfig"].(map[string]any)["caBundle"] = "b3RoZXI="
	c.server.patches = nil
	c.sync(a)
	if len(c.server.patches) != 1 || strings.Contains(c.server.patches[0], "a.waterline.io") ||
		!strings.Contains(c.server.patches[0], "b.waterline.io") {
		t.Errorf("one webhook differs, and the patches are %q", c.server.patches)
	}
}

// TestRace lets many replicas begin at once, and then renew at once. They must end with the same certificate.
func TestRace(t *testing.T) {
	for range 10 {
		c := newCluster(t)
		all := []*Certs{c.replica(), c.replica(), c.replica(), c.replica()}
		for range 3 {
			var wg sync.WaitGroup
			for _, r := range all {
				wg.Go(func() {
					if err := r.Sync(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			first, _ := all[0].GetCertificate(nil)
			for _, r := range all {
				if err := c.call(c.trust(), r); err != nil {
					t.Error(err)
				}
				if other, _ := r.GetCertificate(nil); !other.Leaf.Equal(first.Leaf) {
					t.Error("two certificates")
				}
			}
			c.sleep(80 * 24 * time.Hour)
		}
	}
}

// TestSettle checks that a new authority signs nothing before API servers have known it for an hour, also where both
// certificates are due at the same moment.
func TestSettle(t *testing.T) {
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	b, _, err := renew(start, bundle{}, []string{dns})
	if err != nil {
		t.Fatal(err)
	}
	now := start.Add(authorityLife * 3 / 4)
	b, _, err = renew(now, b, []string{dns})
	if err != nil || len(b.authorities) != 2 {
		t.Fatal(len(b.authorities), err)
	}
	if err := b.serving.Leaf.CheckSignatureFrom(b.authorities[1].cert); err != nil {
		t.Errorf("signed by an authority that is new: %v", err)
	}
	b.serving = tls.Certificate{}
	for after, by := range map[time.Duration]int{settle - time.Second: 1, settle: 0} {
		next, _, err := renew(now.Add(after), b, []string{dns})
		if err != nil {
			t.Fatal(err)
		}
		if err := next.serving.Leaf.CheckSignatureFrom(next.authorities[by].cert); err != nil {
			t.Errorf("%s later: %v", after, err)
		}
	}
}

// TestSecretDeleted checks that what replicas have is put back, so that API servers need not learn of anything.
func TestSecretDeleted(t *testing.T) {
	c := newCluster(t)
	a, b := c.replica(), c.replica()
	c.sync(a, b)
	trust := c.trust()
	for range 3 {
		c.remove(secretPath)
		c.sync(a)
		c.sync(c.replica(), b) // one that starts anew takes it over
		if !bytes.Equal(trust, c.trust()) {
			t.Fatal("another authority")
		}
		for _, r := range []*Certs{a, b} {
			if err := c.call(trust, r); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSecretBroken checks that what is not whole is repaired, whatever is wrong with it.
func TestSecretBroken(t *testing.T) {
	for what, spoil := range map[string]func(map[string][]byte){
		"empty":          func(d map[string][]byte) { clear(d) },
		"no keys":        func(d map[string][]byte) { delete(d, keySigners) },
		"no serving":     func(d map[string][]byte) { delete(d, keyServing) },
		"noise":          func(d map[string][]byte) { d[keyAuthorities] = []byte("noise") },
		"torn":           func(d map[string][]byte) { d[keyServing] = d[keyServing][:100] },
		"leaf for a key": func(d map[string][]byte) { d[keyAuthorities] = d[keyServing] },
		"other's key":    func(d map[string][]byte) { d[keySigners] = d[keyServingKey] },
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t)
			a := c.replica()
			c.sync(a)
			secret, err := c.client.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			spoil(secret.Data)
			if _, err := c.client.CoreV1().Secrets(namespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			trust := c.trust()
			c.sync(a)
			if err := c.call(trust, a); err != nil {
				t.Errorf("one that knew better: %v", err)
			}
			b := c.replica()
			c.sync(b)
			if err := c.call(c.trust(), b); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAway checks that certificates are served on while the API server or the webhook configuration is away.
func TestAway(t *testing.T) {
	c := newCluster(t)
	a := c.replica()
	c.remove("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + webhooks)
	if err := a.Sync(t.Context()); err == nil || a.Ready() {
		t.Errorf("ready without a webhook configuration: %v", err)
	}
	if _, err := a.GetCertificate(nil); err != nil {
		t.Error(err)
	}
	c.server.refuse = http.StatusInternalServerError
	if err := a.Sync(t.Context()); err == nil {
		t.Error("no error")
	}
	if _, err := a.GetCertificate(nil); err != nil {
		t.Error(err)
	}
	if _, err := c.replica().GetCertificate(nil); err == nil {
		t.Error("a certificate from nowhere")
	}
}

// TestServed renews authorities and certificates under a real TLS server while clients call it without a pause.
func TestServed(t *testing.T) {
	c := newCluster(t)
	c.now.Store(time.Now().Unix())
	a := c.replica()
	c.sync(a)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(to http.ResponseWriter,
		_ *http.Request) {
		io.WriteString(to, "yes")
	}))
	server.TLS = &tls.Config{GetCertificate: a.GetCertificate}
	// httptest has a certificate of its own, which Go prefers only for clients that name no host; we name one.
	server.StartTLS()
	defer server.Close()
	var trust atomic.Pointer[[]byte]
	known := c.trust()
	trust.Store(&known)
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64
	var wg sync.WaitGroup
	// A call that took two weeks would find neither the certificate nor the authority that it began with, so time goes on
	// between calls only.
	var calling sync.RWMutex
	call := func() error {
		calling.RLock()
		defer calling.RUnlock()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(*trust.Load())
		client := &http.Client{
			Transport: &http.Transport{
				DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: dns, Time: c.clock},
			},
		}
		answer, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		calls.Add(1)
		return answer.Body.Close()
	}
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := call(); err != nil {
					t.Errorf("%s: %v", c.clock(), err)
					return
				}
			}
		})
	}
	before, _ := a.GetCertificate(nil)
	for range 60 {
		calling.Lock()
		c.sleep(14 * 24 * time.Hour)
		calling.Unlock()
		c.sync(a)
		known := c.trust()
		trust.Store(&known)
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	if after, _ := a.GetCertificate(nil); after.Leaf.Equal(before.Leaf) || calls.Load() < 20 {
		t.Errorf("%d calls, or nothing was renewed", calls.Load())
	}
}

// TestRun checks that what fails is tried again, and that Run ends with its context.
func TestRun(t *testing.T) {
	c := newCluster(t)
	c.server.refuse = http.StatusServiceUnavailable
	a := New(Options{
		Client: c.client, Namespace: namespace, Secret: name, Names: []string{dns}, Webhooks: []string{webhooks},
		Interval: 5 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	time.Sleep(20 * time.Millisecond)
	c.server.mu.Lock()
	c.server.refuse = 0
	c.server.mu.Unlock()
	if !poll.Until(time.Minute, time.Millisecond, a.Ready) {
		t.Fatal("it is not ready")
	}
	cancel()
	<-done
}

// TestNames checks that a certificate for other names is replaced, and that no names are an error.
func TestNames(t *testing.T) {
	c := newCluster(t)
	a := c.replica()
	c.sync(a)
	a.options.Names = []string{dns, "waterline-webhook.waterline-system"}
	c.sync(a)
	cert, _ := a.GetCertificate(nil)
	if got := fmt.Sprint(cert.Leaf.DNSNames); got != fmt.Sprint(a.options.Names) {
		t.Error(got)
	}
	a.options.Names = []string{dns, "192.0.2.7", "2001:db8::7"}
	c.sync(a)
	cert, _ = a.GetCertificate(nil)
	if got := fmt.Sprint(cert.Leaf.DNSNames, cert.Leaf.IPAddresses); got != "["+dns+"] [192.0.2.7 2001:db8::7]" {
		t.Error(got)
	}
	b := newCluster(t).replica()
	b.options.Names = nil
	if err := b.Sync(t.Context()); err == nil {
		t.Error("a certificate for nobody")
	}
}

func FuzzDecode(f *testing.F) {
	b, _, err := renew(time.Unix(1800000000, 0), bundle{}, []string{dns})
	if err != nil {
		f.Fatal(err)
	}
	data, err := b.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[keyAuthorities], data[keySigners], data[keyServing], data[keyServingKey])
	f.Fuzz(func(t *testing.T, authorities, signers, serving, key []byte) {
		b, _ := decode(map[string][]byte{
			keyAuthorities: authorities, keySigners: signers, keyServing: serving, keyServingKey: key,
		})
		next, _, err := renew(time.Unix(1800000000, 0), b, []string{dns})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := next.encode(); err != nil {
			t.Fatal(err)
		}
	})
}
