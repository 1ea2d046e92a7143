package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// signer is an authority of clients.
type signer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{t: t}
	certificate := s.sign(&x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"},
	})
	s.cert, s.key = certificate.Leaf, certificate.PrivateKey.(*ecdsa.PrivateKey)
	return s
}

func (s *signer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})
}

func (s *signer) sign(template *x509.Certificate) tls.Certificate {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	by, with := s.cert, s.key
	if by == nil {
		by, with = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), with)
	if err != nil {
		s.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// client returns a certificate of a client.
func (s *signer) client(name string, dnsNames ...string) *tls.Certificate {
	c := s.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: dnsNames, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return &c
}

// TestRequireClients calls a server with and without certificates of clients.
func TestRequireClients(t *testing.T) {
	ours, other := newSigner(t), newSigner(t)
	server := ours.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	for _, c := range []struct {
		what   string
		names  []string
		client *tls.Certificate
		want   bool
	}{
		{"no certificate", nil, nil, false},
		{"ours", nil, ours.client("anybody"), true},
		{"another authority's", nil, other.client("apiserver"), false},
		{"one of a server", nil, &server, false},
		{"no certificate, with names", []string{"apiserver"}, nil, false},
		{"the name", []string{"b", "apiserver"}, ours.client("apiserver"), true},
		{"another name", []string{"b", "apiserver"}, ours.client("kubelet"), false},
		{"a name among others", []string{"apiserver.example"}, ours.client("kubelet", "a", "apiserver.example"), true},
		{"no name", []string{"apiserver"}, ours.client(""), false},
		{"another authority's, with the name", []string{"apiserver"}, other.client("apiserver"), false},
	} {
		config, err := RequireClients(&tls.Config{MinVersion: tls.VersionTLS12}, ours.pem(), c.names)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
		s.TLS, s.Config.ErrorLog = config, log.New(io.Discard, "", 0)
		s.StartTLS()
		transport := s.Client().Transport.(*http.Transport)
		if c.client != nil { // sent whatever the server says that it accepts
			transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return c.client, nil
			}
		}
		transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		for range 2 { // the second connection can resume the first
			answer, err := s.Client().Get(s.URL)
			if err == nil {
				err = answer.Body.Close()
			}
			if (err == nil) != c.want {
				t.Errorf("%s: %v", c.what, err)
			}
			transport.CloseIdleConnections()
		}
		if s.Close(); (calls == 2) != c.want {
			t.Errorf("%s: %d calls were answered", c.what, calls)
		}
	}
	for what, err := range map[string]error{
		"no authority": second(RequireClients(&tls.Config{}, []byte("x"), nil)),
		"no name":      second(RequireClients(&tls.Config{}, ours.pem(), []string{""})),
	} {
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }
