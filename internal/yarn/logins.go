package yarn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/jcmturner/gokrb5/v8/messages"
)

// The times from a login that the KDC refused to the next one. A KDC locks a principal after some logins with a wrong
// key, often five within half an hour. One that knows no such principal, or has locked it, does not count.
const (
	afterWrongKey = time.Hour
	afterRefusal  = time.Minute
)

// patience returns how long to wait after an error of a login: 0 if the KDC did not refuse it. The next login has the
// same key, because a new keytab makes new tickets; but an administrator may also correct the KDC.
func patience(err error) time.Duration {
	var refused messages.KRBError
	var undone krberror.Krberror
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == errorcode.KDC_ERR_PREAUTH_FAILED,
		errors.As(err, &undone) && undone.RootCause == krberror.DecryptingError:
		return afterWrongKey
	case errors.As(err, &refused):
		return afterRefusal
	}
	return 0
}

// Logins has the logins that KDCs refused lately. The clients of several clusters can share one value, because a KDC
// locks a principal whoever sends the wrong key. Its methods may be called concurrently. The zero value has none.
type Logins struct {
	mu  sync.Mutex
	all map[caller]*login
}

// caller is a principal with one keytab and one configuration, as their hash.
type caller [sha256.Size]byte

func callerOf(k *Kerberos) (c caller) {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(k.Principal), k.Keytab, k.Config} {
		fmt.Fprintf(h, "%d ", len(part))
		h.Write(part) // never fails
	}
	return caller(h.Sum(nil))
}

// login is the last login of a caller.
type login struct {
	turn    chan struct{} // has a value while somebody logs in
	clients int           // that use this value now
	refusal error         // nil: it was not refused
	until   time.Time     // there is no other login before, see [patience]; zero: it was not refused
}

// try logs in, unless the KDC refused that a while ago: then it returns that error. A caller logs in once at a time.
func (l *Logins) try(ctx context.Context, c caller, in func() (ticket, error)) (ticket, error) {
	last := l.enter(c)
	defer l.leave(last)
	select {
	case last.turn <- struct{}{}:
		defer func() { <-last.turn }()
	case <-ctx.Done():
		return ticket{}, fmt.Errorf("waiting for another login to Kerberos: %w", ctx.Err())
	}
	if time.Now().Before(last.until) {
		return ticket{}, last.refusal
	}
	got, err := in()
	last.refusal, last.until = nil, time.Time{}
	if patience(err) > 0 {
		last.refusal, last.until = err, time.Now().Add(patience(err))
	}
	return got, err
}

func (l *Logins) enter(c caller) *login {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[caller]*login{}
	}
	last := l.all[c]
	if last == nil {
		last = &login{turn: make(chan struct{}, 1)}
		l.all[c] = last
	}
	last.clients++
	return last
}

// leave forgets the logins that nobody has to know of any more.
func (l *Logins) leave(last *login) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last.clients--
	maps.DeleteFunc(l.all, func(_ caller, l *login) bool { return l.clients == 0 && !time.Now().Before(l.until) })
}
