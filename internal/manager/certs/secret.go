package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret. The first two are PEM lists in the same order, the newest first.
const (
	keyAuthorities = "ca.crt"
	keySigners     = "ca.key"
	keyServing     = corev1.TLSCertKey
	keyServingKey  = corev1.TLSPrivateKeyKey
)

// encode writes a bundle as a Secret's data.
func (b bundle) encode() (map[string][]byte, error) {
	var signers bytes.Buffer
	for _, a := range b.authorities {
		text, err := encodeKey(a.key)
		if err != nil {
			return nil, fmt.Errorf("writing the authority's key: %w", err)
		}
		signers.Write(text)
	}
	serving, err := encodeKey(b.serving.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("writing the serving key: %w", err)
	}
	return map[string][]byte{
		keyAuthorities: b.trust(), keySigners: signers.Bytes(),
		keyServing: encodeCertificate(b.serving.Leaf.Raw), keyServingKey: serving,
	}, nil
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// decode reads a Secret's data. What cannot be read, or does not fit together, is missing in the bundle, and the error
// says so; the rest is usable.
func decode(data map[string][]byte) (bundle, error) {
	var b bundle
	var problems []error
	signers := data[keySigners]
	for authorities := data[keyAuthorities]; len(bytes.TrimSpace(authorities)) > 0; {
		var cert, key *pem.Block
		cert, authorities = pem.Decode(authorities)
		key, signers = pem.Decode(signers)
		if cert == nil || key == nil {
			problems = append(problems,
				fmt.Errorf("%s has another number of certificates than %s has keys", keyAuthorities, keySigners))
			break
		}
		a, err := decodeAuthority(cert.Bytes, key.Bytes)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		b.authorities = append(b.authorities, a)
	}
	serving, err := tls.X509KeyPair(data[keyServing], data[keyServingKey])
	if err != nil {
		problems = append(problems, fmt.Errorf("reading the serving certificate: %w", err))
	} else {
		b.serving = serving
	}
	return b, errors.Join(problems...)
}

func decodeAuthority(cert, key []byte) (authority, error) {
	c, err := x509.ParseCertificate(cert)
	if err != nil {
		return authority{}, fmt.Errorf("reading an authority: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return authority{}, fmt.Errorf("reading an authority's key: %w", err)
	}
	k, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !k.PublicKey.Equal(c.PublicKey) || !c.IsCA {
		return authority{}, errors.New("reading an authority: the key is another's, or the certificate is no authority's")
	}
	return authority{c, k}, nil
}
