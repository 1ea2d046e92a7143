package yarn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
)

// trust makes a transport trust servers whose certificates these authorities signed, and no others.
func trust(transport *http.Transport, ca []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the certificates of authorities have none in PEM; it starts with -----BEGIN CERTIFICATE-----")
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return nil
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
