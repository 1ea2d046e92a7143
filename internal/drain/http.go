package drain

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Bounds of one request.
const (
	requestTimeout = 5 * time.Second
	maxAnswer      = 16 << 20 // bytes; an engine's list of a thousand workers has less than 1 MiB
	maxText        = 200      // bytes that are repeated of a refusal
)

// Auth says who the caller is. At most one of Password and Token is used.
type Auth struct {
	User     string
	Password string // HTTP basic authentication of User
	Token    string // bearer token, such as a JWT
	CA       []byte // certificates, in PEM, of the authorities that may sign https servers; the system's if empty
	// Dial makes all connections, also where the environment names a proxy; nil: there is no such restriction.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client sends requests to web services. It is for concurrent use.
type Client struct {
	auth   Auth
	header http.Header
	http   http.Client
	most   int // bytes of an answer
}

// NewClient returns a client. header is sent with every request besides what auth needs.
func NewClient(auth Auth, header http.Header) (*Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if auth.Dial != nil {
		transport.DialContext, transport.Proxy = auth.Dial, nil
	}
	if len(auth.CA) > 0 {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(auth.CA) {
			return nil, errors.New("the authority has no certificate; write its certificates in PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &Client{auth: auth, header: header, most: maxAnswer, http: http.Client{
		Transport: transport, Timeout: requestTimeout,
		// A redirect would take the password elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Limited returns a client that makes the same requests, and takes answers of at most so many bytes. A client of
// [NewClient] takes 16 MiB.
func (c *Client) Limited(bytes int) *Client {
	limited := *c
	limited.most = bytes
	return &limited
}

// StatusError is an answer with an HTTP status that is no success. It has nothing else of the answer: who asks may be
// another than who may read what the server says.
type StatusError struct {
	Method, URL string
	Status      int
}

// Error says what was asked and what was answered.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: status %d", e.Method, e.URL, e.Status)
}

// IsStatus reports whether an error is an answer with one of these HTTP statuses.
func IsStatus(err error, statuses ...int) bool {
	var s *StatusError
	if !errors.As(err, &s) {
		return false
	}
	return slices.Contains(statuses, s.Status)
}

// Excerpt returns the beginning of a refusal, on one line.
func Excerpt(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// JSON sends a request with a body in JSON, if it is not nil, and decodes an answer in JSON into into, if not nil.
func (c *Client) JSON(ctx context.Context, method, url string, body, into any) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return fmt.Errorf("writing the request for %s: %w", url, err)
		}
	}
	answer, err := c.Send(ctx, method, url, "application/json", content)
	if err != nil || into == nil {
		return err
	}
	if json.Unmarshal(answer, into) != nil {
		return fmt.Errorf("%s %s: the answer is not the JSON that was expected; check that the address is the right one",
			method, url)
	}
	return nil
}

// Send sends a request, and returns the answer. A status that is no success is a [StatusError].
func (c *Client) Send(ctx context.Context, method, url, kind string, body []byte) ([]byte, error) {
	if c.auth.Password != "" && !strings.HasPrefix(url, "https:") {
		return nil, fmt.Errorf("%s %s: a password is sent over https only; write an https address, or leave the password out",
			method, url)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	maps.Copy(r.Header, c.header)
	r.Header.Set("Accept", "*/*")
	if body != nil {
		r.Header.Set("Content-Type", kind)
	}
	switch {
	case c.auth.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.auth.Token)
	case c.auth.Password != "":
		r.SetBasicAuth(c.auth.User, c.auth.Password)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, err // it names the method and the URL
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, int64(c.most)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer to %s %s: %w", method, url, err)
	case len(answer) > c.most:
		return nil, fmt.Errorf("%s %s: the answer has more than %d bytes", method, url, c.most)
	case response.StatusCode < 200 || response.StatusCode > 299:
		return nil, &StatusError{Method: method, URL: url, Status: response.StatusCode}
	}
	return answer, nil
}
