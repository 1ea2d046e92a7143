package yarn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
)

// trusting returns a transport that trusts servers whose certificates these authorities signed, and no others.
func trusting(ca []byte) (http.RoundTripper, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the certificates of authorities have none in PEM; it starts with " +
			"-----BEGIN CERTIFICATE-----")
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		transport = standard.Clone()
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	return transport, nil
}

// explainTLS adds to the error of a request what to do if it is about the server's certificate.
func explainTLS(err error) error {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("%w; give the client the certificate of the authority that signed the server's, in PEM", err)
	case errors.As(err, &name):
		return fmt.Errorf("%w; the address must have a name that the server's certificate has", err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w; renew the server's certificate, or set the clocks right", err)
	}
	return err
}
