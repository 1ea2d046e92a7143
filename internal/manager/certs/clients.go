package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// RequireClients returns a TLS configuration like another one, which accepts only clients with a certificate that one
// of these authorities, in PEM, signed for clients. If names are given, one of them must be its common name or one of
// its DNS names: an authority of a cluster often signs for more clients than API servers.
func RequireClients(config *tls.Config, authorities []byte, names []string) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return nil, errors.New("there is no certificate of an authority in PEM; it starts with -----BEGIN CERTIFICATE-----")
	}
	if slices.Contains(names, "") {
		return nil, errors.New("one of the names of clients is empty")
	}
	strict := config.Clone()
	strict.ClientAuth, strict.ClientCAs = tls.RequireAndVerifyClientCert, roots
	strict.VerifyConnection = func(state tls.ConnectionState) error { // also of connections that are resumed
		if len(names) == 0 {
			return nil
		}
		if len(state.PeerCertificates) == 0 {
			return errors.New("the client has no certificate")
		}
		client := state.PeerCertificates[0]
		for _, name := range append([]string{client.Subject.CommonName}, client.DNSNames...) {
			if slices.Contains(names, name) {
				return nil
			}
		}
		return fmt.Errorf("the client's certificate is for %q, which is not among the accepted clients",
			client.Subject.CommonName)
	}
	return strict, nil
}
