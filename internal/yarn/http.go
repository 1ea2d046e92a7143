package yarn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds an answer in bytes, if nobody says otherwise. A node takes 2.2 kB in Hadoop 3.5.
const maxAnswer = 64 << 20

// HTTPOptions say how to reach web services of Hadoop.
type HTTPOptions struct {
	// Auth says who the caller is. Without a value, requests are anonymous.
	Auth Auth
	// CA has the certificates, in PEM, of the authorities that may sign those of https servers; the system's if empty.
	CA []byte
	// Timeout bounds one request, with its Kerberos tickets; 10 s if 0.
	Timeout time.Duration
	// MaxAnswer bounds an answer in bytes; 64 MiB if 0, which is room for 25,000 nodes.
	MaxAnswer int64
	// MaxWhole is the same for an answer that is no list, which is kept as a whole; MaxAnswer if 0.
	MaxWhole int64
	// Transport sends the requests; one like [http.DefaultTransport] that trusts CA if nil. It excludes CA.
	Transport http.RoundTripper
}

type web struct {
	user      string
	principal string // of Kerberos, or empty
	timeout   time.Duration
	most      int64 // bytes of an answer
	whole     int64 // bytes of one that is read as a whole
	client    http.Client
}

// newWeb returns a client that logs in where the cluster asks for it.
func newWeb(o HTTPOptions) (web, error) {
	w, err := simpleWeb(o)
	if err != nil {
		return web{}, err
	}
	tickets, err := o.Auth.tickets()
	if err != nil {
		return web{}, err
	}
	if tickets != nil {
		w.client.Transport = &negotiator{next: w.client.Transport, tickets: tickets, asks: map[string]bool{}}
		w.principal = tickets.principal
	}
	return w, nil
}

// simpleWeb returns a client that never logs in. A program that makes no other one is linked without Kerberos.
func simpleWeb(o HTTPOptions) (web, error) {
	transport := o.Transport
	if len(o.CA) > 0 {
		if transport != nil {
			return web{}, errors.New("a transport and certificates of authorities exclude each other")
		}
		own := http.DefaultTransport.(*http.Transport).Clone()
		if err := trust(own, o.CA); err != nil {
			return web{}, err
		}
		transport = own
	}
	if transport == nil {
		transport = http.DefaultTransport
	}
	return web{
		user: o.Auth.User, timeout: cmp.Or(o.Timeout, 10*time.Second),
		most: cmp.Or(o.MaxAnswer, maxAnswer), whole: cmp.Or(o.MaxWhole, o.MaxAnswer, maxAnswer),
		client: http.Client{
			Transport: transport,
			// A standby ResourceManager redirects to the active one by a name that may mean nothing here.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// jsonType is the media type of answers.
const jsonType = "application/json"

// request is a call of a web service, independent of which server gets it.
type request struct {
	method string
	path   string
	query  url.Values
	body   any // written as JSON; nil: no body
}

// do sends a request to one server and decodes the answer into into, if not nil.
func (w *web) do(ctx context.Context, base string, r request, into any) error {
	a, err := w.send(ctx, base, r)
	if err != nil || into == nil {
		return err
	}
	return a.json(into)
}

// answer is what a server answered to a request, with a status of success.
type answer struct {
	method, target string // of the request
	kind           string // media type
	content        []byte
}

// send sends a request to one server. A redirect is [ErrStandby], and so is the page that a standby ResourceManager
// shows while there is no active one. Any other status that is no success is a [StatusError].
func (w *web) send(ctx context.Context, base string, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	response, a, err := w.open(ctx, base, r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	err = w.read(response, &a)
	return a, err
}

// open sends a request to one server, and returns the response, whose body the caller closes.
func (w *web) open(ctx context.Context, base string, r request) (*http.Response, answer, error) {
	query := url.Values{}
	maps.Copy(query, r.query)
	if w.user != "" {
		query.Set("user.name", w.user)
	}
	a := answer{method: r.method, target: strings.TrimSuffix(base, "/") + r.path}
	if len(query) > 0 {
		a.target += "?" + query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		content, err := json.Marshal(r.body)
		if err != nil {
			return nil, a, fmt.Errorf("writing the request for %s: %w", r.path, err)
		}
		body = bytes.NewReader(content)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, a.target, body)
	if err != nil {
		return nil, a, fmt.Errorf("%s %s: %w", r.method, a.target, err)
	}
	req.Header.Set("Accept", jsonType)
	if r.body != nil {
		req.Header.Set("Content-Type", jsonType)
	}
	response, err := w.client.Do(req)
	if err != nil {
		return nil, a, explainTLS(err) // it names the method and the URL
	}
	return response, a, nil
}

// read reads the answer as a whole.
func (w *web) read(response *http.Response, a *answer) (err error) {
	a.content, err = io.ReadAll(io.LimitReader(response.Body, w.whole+1))
	if err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", a.method, a.target, err)
	}
	if int64(len(a.content)) > w.whole {
		return fmt.Errorf("%s %s: the answer has more than %d bytes", a.method, a.target, w.whole)
	}
	err = a.check(response)
	var status *StatusError
	if errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden) {
		status.hint = refusal(status, a.content, response, w.principal)
	}
	return err
}

// check returns an error unless the answer is that of an active ResourceManager, or of a NodeManager, and a success.
func (a *answer) check(response *http.Response) error {
	status := response.StatusCode
	if status >= 300 && status < 400 {
		return fmt.Errorf("%w: %s redirects to another server", ErrStandby, a.target)
	}
	// With no active ResourceManager known, a standby one shows a page that reloads itself.
	if response.Header.Get("Refresh") != "" || bytes.HasPrefix(a.content, []byte("This is standby RM")) {
		return fmt.Errorf("%w: %s knows no active one", ErrStandby, a.target)
	}
	if status < 200 || status > 299 {
		return statusError(status, a.content, a.method, a.target)
	}
	a.kind, _, _ = mime.ParseMediaType(response.Header.Get("Content-Type")) // "" on an error, which no caller accepts
	return nil
}

// json decodes an answer in JSON.
func (a *answer) json(into any) error {
	if a.kind != jsonType {
		return fmt.Errorf("%s %s: the answer is %q, not JSON; check that the address is that of YARN's web services",
			a.method, a.target, a.kind)
	}
	if err := json.Unmarshal(a.content, into); err != nil {
		return fmt.Errorf("%s %s: reading the answer: %w", a.method, a.target, err)
	}
	return nil
}

// statusError returns the error of an answer. Of the content, it keeps only a Java exception in Hadoop's format: any
// other content may come from a server that the reader of the error must not have access to.
func statusError(status int, content []byte, method, target string) error {
	e := &StatusError{Method: method, URL: target, Status: status}
	var exception struct {
		RemoteException struct{ Exception, Message string }
	}
	if json.Unmarshal(content, &exception) == nil && exception.RemoteException.Exception != "" {
		e.Exception, e.Message = cut(exception.RemoteException.Exception), cut(exception.RemoteException.Message)
	}
	return e
}

// final reports whether another server would give the same answer.
func final(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Status != http.StatusServiceUnavailable
	}
	return loginFailed(err)
}

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
