package yarn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// KerberosError says that the KDC gave no ticket.
type KerberosError struct {
	Principal string // the caller
	Service   string // whose ticket was asked for; empty: the caller's login
	Err       error
}

// Error says which ticket was asked for by whom, why there is none, and what to do.
func (e *KerberosError) Error() string {
	doing := "logging in to Kerberos as " + e.Principal
	if e.Service != "" {
		doing = "getting a Kerberos ticket for " + e.Service + " as " + e.Principal
	}
	text := fmt.Sprintf("%s: %v", doing, e.Err)
	if hint := e.hint(); hint != "" {
		text += "; " + hint
	}
	return text
}

// Unwrap returns what went wrong.
func (e *KerberosError) Unwrap() error { return e.Err }

const wrongKey = "the key in the keytab is not the one that the KDC has for this principal; export the keytab again " +
	"(the same key is not used for another hour, because the KDC would lock the principal)"

func (e *KerberosError) hint() string {
	var refused messages.KRBError
	if !errors.As(e.Err, &refused) {
		var undone krberror.Krberror
		switch {
		case errors.Is(e.Err, errUnreachable):
			return "check the addresses of kdc in the Kerberos configuration, and that its TCP port can be reached from here"
		case errors.As(e.Err, &undone) && undone.RootCause == krberror.DecryptingError:
			return wrongKey // the KDC does not demand pre-authentication
		}
		return ""
	}
	switch refused.ErrorCode {
	case errorcode.KDC_ERR_PREAUTH_FAILED:
		return wrongKey
	case errorcode.KDC_ERR_C_PRINCIPAL_UNKNOWN:
		return "the KDC does not know this principal; check its name and realm"
	case errorcode.KDC_ERR_S_PRINCIPAL_UNKNOWN:
		return "the KDC does not know this service; check that the address has the host name for which the service's " +
			"principal was made"
	case errorcode.KRB_AP_ERR_SKEW:
		return fmt.Sprintf("the KDC's clock was at %s; set the clocks right", refused.STime.Format(time.RFC3339))
	case errorcode.KDC_ERR_ETYPE_NOSUPP:
		return "the keytab, the KDC and the service have no encryption type in common; export the keytab with AES keys"
	case errorcode.KDC_ERR_CLIENT_REVOKED, errorcode.KDC_ERR_KEY_EXPIRED, errorcode.KDC_ERR_NAME_EXP:
		return "the KDC has locked this principal, or it has expired"
	}
	return ""
}

// loginFailed reports whether the caller has no ticket for any service.
func loginFailed(err error) bool {
	var failed *KerberosError
	return errors.As(err, &failed) && failed.Service == ""
}

// skewError says that this machine's clock is wrong, or the KDC's.
type skewError struct {
	by time.Duration
}

// Error says by how much.
func (e *skewError) Error() string {
	return fmt.Sprintf("this machine's clock differs from the KDC's by %v; set the clocks right",
		e.by.Abs().Round(time.Second))
}

// ticket is a Kerberos ticket with its session key.
type ticket struct {
	messages.Ticket
	key        types.EncryptionKey
	start, end time.Time
}

func newTicket(t messages.Ticket, part messages.EncKDCRepPart) ticket {
	got := ticket{Ticket: t, key: part.Key, start: part.StartTime, end: part.EndTime}
	if got.start.IsZero() {
		got.start = part.AuthTime
	}
	return got
}

// fresh reports whether the ticket is good for a while: more than a tenth of its life is left.
func (t ticket) fresh(now time.Time) bool { return t.end.Sub(now) > t.end.Sub(t.start)/10 }

// tickets gets and keeps the tickets of one principal. Its methods may be called concurrently.
type tickets struct {
	principal string // with its realm
	service   string // as in [Kerberos]
	name      types.PrincipalName
	realm     string
	etypes    []int32 // of the keytab's keys, the preferred one first
	keytab    *keytab.Keytab
	config    *config.Config
	// send sends a request to a KDC and returns its reply.
	send func(ctx context.Context, address string, request []byte) ([]byte, error)

	// turn holds a value while a method uses what follows.
	turn     chan struct{}
	granting ticket            // gets the others
	have     map[string]ticket // by service and realm
	replied  map[string]string // the KDC that replied last, by realm
	logins   *Logins
	caller   caller // that logs in
}

// of returns a ticket for a service, such as HTTP/rm1.example, which may be followed by its realm. The error is a
// [KerberosError] unless the context ended.
func (t *tickets) of(ctx context.Context, service string) (ticket, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ticket{}, fmt.Errorf("waiting for a Kerberos ticket for %s: %w", service, ctx.Err())
	}
	name, realm, _ := strings.Cut(service, "@")
	if realm == "" {
		_, host, _ := strings.Cut(name, "/")
		if realm = t.config.ResolveRealm(host); realm == "" {
			realm = t.realm
		}
	}
	full := name + "@" + realm
	now := time.Now()
	if kept, found := t.have[full]; found && kept.fresh(now) {
		return kept, nil
	}
	principal := types.NewPrincipalName(nametype.KRB_NT_SRV_HST, name)
	if t.granting.fresh(now) {
		got, err := t.grant(ctx, t.granting, principal, realm)
		if err == nil {
			t.have[full] = got
			return got, nil
		}
		// The KDC can refuse the login's ticket before it expires, for instance after it got a new key. A new login helps.
		var refused messages.KRBError
		if !errors.As(err, &refused) || refused.ErrorCode == errorcode.KDC_ERR_S_PRINCIPAL_UNKNOWN {
			return ticket{}, &KerberosError{Principal: t.principal, Service: full, Err: err}
		}
		t.granting = ticket{}
	}
	granting, err := t.logins.try(ctx, t.caller, func() (ticket, error) {
		granting, err := t.login(ctx)
		if err != nil {
			err = &KerberosError{Principal: t.principal, Err: err}
		}
		return granting, err
	})
	if err != nil {
		return ticket{}, err
	}
	t.granting = granting
	got, err := t.grant(ctx, granting, principal, realm)
	if err != nil {
		return ticket{}, &KerberosError{Principal: t.principal, Service: full, Err: err}
	}
	t.have[full] = got
	return got, nil
}

// forget drops a ticket that a service refused, so that the next call gets another. The service may have got a new key.
func (t *tickets) forget(ctx context.Context, refused ticket) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return
	}
	maps.DeleteFunc(t.have, func(_ string, kept ticket) bool {
		return bytes.Equal(kept.EncPart.Cipher, refused.EncPart.Cipher)
	})
}
