package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// How long certificates are valid. Both are renewed when a third of that is left.
const (
	authorityLife = 2 * 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
)

// settle is how long an authority is known to API servers before anything that it signed is served. An API server
// learns of it by its watch, within a second; this is for one that is cut off.
const settle = time.Hour

// backdate is by how much certificates are valid before they are made, for clocks that are behind.
const backdate = time.Hour

// authority is a certificate authority of ours. There are two of them while one takes over from the other.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// bundle is everything that replicas share.
type bundle struct {
	authorities []authority // the newest first
	serving     tls.Certificate
}

// renew returns what should be used at a time, and whether that is something else than before. What is valid is kept;
// what is not is made anew. It is what each replica does, so that none is special.
func renew(now time.Time, old bundle, names []string) (next bundle, changed bool, err error) {
	for _, a := range old.authorities {
		if now.Before(a.cert.NotAfter) && !now.Before(a.cert.NotBefore) {
			next.authorities = append(next.authorities, a)
		}
	}
	changed = len(next.authorities) != len(old.authorities)
	if len(next.authorities) == 0 || due(now, next.authorities[0].cert) {
		a, err := newAuthority(now)
		if err != nil {
			return bundle{}, false, err
		}
		next.authorities = slices.Insert(next.authorities, 0, a)
		changed = true
	}
	next.serving = old.serving
	if !serves(now, next, names) {
		next.serving, err = newServing(now, next.signer(now), names)
		if err != nil {
			return bundle{}, false, err
		}
		changed = true
	}
	return next, changed, nil
}

// due reports whether less than a third of a certificate's life is left.
func due(now time.Time, c *x509.Certificate) bool {
	return c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/3
}

// signer returns the newest authority that is known long enough, or the newest where none is.
func (b bundle) signer(now time.Time) authority {
	for _, a := range b.authorities {
		if !now.Before(a.cert.NotBefore.Add(backdate + settle)) {
			return a
		}
	}
	return b.authorities[0]
}

// serves reports whether the serving certificate is good for all names, under an authority that API servers know, for a
// while yet.
func serves(now time.Time, b bundle, names []string) bool {
	leaf := b.serving.Leaf
	if leaf == nil || due(now, leaf) {
		return false
	}
	roots := x509.NewCertPool()
	for _, a := range b.authorities {
		roots.AddCert(a.cert)
	}
	for _, name := range names {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
			return false
		}
	}
	return true
}

// trust returns the authorities that a client should know, in PEM.
func (b bundle) trust() []byte {
	var all bytes.Buffer
	for _, a := range b.authorities {
		all.Write(encodeCertificate(a.cert.Raw))
	}
	return all.Bytes()
}

func newAuthority(now time.Time) (authority, error) {
	cert, key, err := issue(now, authorityLife, &x509.Certificate{
		Subject: pkix.Name{CommonName: "waterline-webhook-ca"}, KeyUsage: x509.KeyUsageCertSign,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}, nil)
	if err != nil {
		return authority{}, fmt.Errorf("making an authority: %w", err)
	}
	return authority{cert, key}, nil
}

func newServing(now time.Time, by authority, names []string) (tls.Certificate, error) {
	if len(names) == 0 {
		return tls.Certificate{}, errors.New("making a serving certificate: no names")
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "waterline-webhook"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	cert, key, err := issue(now, servingLife, template, &by)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a serving certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

// issue makes a key and a certificate that an authority signs, and that does not outlive it; nil: it is an authority's
// own. The template lacks what all certificates have in common.
func issue(
	now time.Time, life time.Duration, template *x509.Certificate, by *authority,
) (cert *x509.Certificate, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(life)
	if by == nil {
		by = &authority{template, key}
	} else if template.NotAfter.After(by.cert.NotAfter) {
		template.NotAfter = by.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, nil, err
	}
	cert, err = x509.ParseCertificate(der)
	return cert, key, err
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
