package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/waterline-io/waterline/test/bed/vmnode"
)

// authority signs the cluster's certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes a certificate authority and writes its certificate.
func newAuthority(p paths) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the authority's key: %w", err)
	}
	template := certificate("waterline-bed", "")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the authority's certificate: %w", err)
	}
	return &authority{cert, key}, writePEM(p.pki("ca.crt"), "CERTIFICATE", der)
}

// issue writes name.crt and name.key for a user and group, and for a server at the given hosts.
func (a *authority) issue(p paths, name, user, group string, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key for %s: %w", name, err)
	}
	template := certificate(user, group)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("making a certificate for %s: %w", name, err)
	}
	if err := writePEM(p.pki(name+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(p.pki(name+".key"), key)
}

// kubeconfig writes a kubeconfig file for a user and group.
func (a *authority) kubeconfig(p paths, path, name, user, group string) error {
	if err := a.issue(p, name, user, group); err != nil {
		return err
	}
	return writeFile(path, kubeconfig(p.address, p.pki("ca.crt"), p.pki(name+".crt"), p.pki(name+".key")), 0o600)
}

// kubeconfig returns a kubeconfig file that names the API server's address and these files.
func kubeconfig(server, ca, cert, key string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: bed, cluster: {server: "https://%s:443", certificate-authority: %s}}]
users: [{name: user, user: {client-certificate: %s, client-key: %s}}]
contexts: [{name: bed, context: {cluster: bed, user: user}}]
current-context: bed
`, server, ca, cert, key)
}

// writePKI makes everything that the components know each other by.
func writePKI(p paths) error {
	ca, err := newAuthority(p)
	if err != nil {
		return err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the service accounts' key: %w", err)
	}
	if err := writeKey(p.pki("accounts.key"), accounts); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error {
			return ca.issue(p, "apiserver", "kube-apiserver", "", p.address, serviceAddress, "127.0.0.1", "localhost",
				"kubernetes", "kubernetes.default", "kubernetes.default.svc")
		},
		func() error {
			return ca.issue(p, "apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
		},
		func() error { return ca.issue(p, "webhooks", WebhookUser, "") },
		func() error {
			return ca.issue(p, "kubelet-server", "system:node:"+NodeName, "system:nodes", NodeName, p.address)
		},
		func() error { return ca.kubeconfig(p, p.kubeconfig(), "admin", "admin", "system:masters") },
		func() error {
			return ca.kubeconfig(p, p.in("kubelet.kubeconfig"), "kubelet", "system:node:"+NodeName, "system:nodes")
		},
		func() error {
			// The kubelet's and the tests' server's, at the node's address and where the host reaches it.
			return ca.issue(p, "vm", "system:node:"+vmnode.Name, "system:nodes", vmnode.Name, vmnode.Address, p.address)
		},
		func() error {
			return writeFile(p.in("vm.kubeconfig"), kubeconfig(p.address, vmnode.CA, vmnode.Cert, vmnode.Key), 0o600)
		},
		func() error {
			return ca.kubeconfig(p, p.in("coredns.kubeconfig"), "coredns", "coredns", "system:masters")
		},
		func() error {
			return ca.kubeconfig(p, p.in("scheduler.kubeconfig"), "scheduler", "system:kube-scheduler", "")
		},
		func() error {
			return ca.kubeconfig(p, p.in("controller-manager.kubeconfig"), "controller-manager",
				"system:kube-controller-manager", "")
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func certificate(user, group string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
	}
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return writeFile(path, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})), 0o600)
}
