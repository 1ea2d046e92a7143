package yarn

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// negotiator sends requests, with a Kerberos ticket to hosts that ask for one. It keeps no cookies. Each request has a
// token of its own instead, which needs no second round, and nothing to renew.
type negotiator struct {
	next    http.RoundTripper
	tickets *tickets

	mu   sync.Mutex
	asks map[string]bool // hosts that asked for Kerberos
}

// RoundTrip sends a request. An answer with status 401 means that the server refused the ticket, or wants none.
func (n *negotiator) RoundTrip(request *http.Request) (*http.Response, error) {
	host := strings.ToLower(request.URL.Hostname())
	if !n.knows(request.URL.Host) {
		answer, err := n.next.RoundTrip(request)
		if err != nil || !negotiates(answer) {
			return answer, err
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16)) // so that the connection can be used again
		answer.Body.Close()
		n.mu.Lock()
		n.asks[request.URL.Host] = true
		n.mu.Unlock()
	} else if request.Body != nil {
		defer request.Body.Close()
	}
	again := request.Clone(request.Context())
	if request.Body != nil {
		if request.GetBody == nil {
			return nil, errors.New("the body of the request cannot be sent twice")
		}
		body, err := request.GetBody()
		if err != nil {
			return nil, err
		}
		again.Body = body
	}
	service := "HTTP/" + host
	with, err := n.tickets.of(request.Context(), service)
	if err != nil {
		return nil, err
	}
	_, token, err := n.tickets.initiate(with)
	if err == nil {
		token, err = spnegoToken(token)
	}
	if err != nil {
		return nil, &KerberosError{Principal: n.tickets.principal, Service: service, Err: err}
	}
	again.Header.Set("Authorization", "Negotiate "+base64.StdEncoding.EncodeToString(token))
	answer, err := n.next.RoundTrip(again)
	if err == nil && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) {
		n.tickets.forget(request.Context(), with)
	}
	return answer, err
}

func (n *negotiator) knows(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asks[host]
}

// negotiates reports whether an answer asks for Kerberos.
func negotiates(answer *http.Response) bool {
	if answer.StatusCode != http.StatusUnauthorized {
		return false
	}
	for _, challenge := range answer.Header.Values("WWW-Authenticate") {
		if scheme, _, _ := strings.Cut(strings.TrimSpace(challenge), " "); strings.EqualFold(scheme, "Negotiate") {
			return true
		}
	}
	return false
}

// refusal says what to do about an answer with status 401 or 403. who is the caller's principal, or empty.
func refusal(e *StatusError, content []byte, answer *http.Response, who string) string {
	switch {
	case negotiates(answer) && who == "":
		return "the server asks for Kerberos; give the client a principal and its keytab"
	case who == "":
		return "check the user name, and that yarn.admin.acl names this user"
	// Hadoop 3.5.0 answers 403 with Java's GSSException in the text to a ticket that it cannot read, and 401 with an
	// exception of its own to a caller that is no administrator.
	case bytes.Contains(content, []byte("GSSException")), e.Status == http.StatusUnauthorized && e.Exception == "":
		return fmt.Sprintf("the server refused the Kerberos ticket of %s; check the server's keytab for HTTP/%s, and the "+
			"clocks", who, strings.ToLower(answer.Request.URL.Hostname()))
	}
	return fmt.Sprintf("the caller is %s; check that yarn.admin.acl names the user that the server's "+
		"hadoop.security.auth_to_local makes of it", who)
}
