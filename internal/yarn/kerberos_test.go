package yarn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// direct asks a KDC by a connection that nothing restricts.
var direct = askKDC(new(net.Dialer).DialContext)

// TestTickets checks that tickets are kept until they are about to expire, and that a refused login is made again.
func TestTickets(t *testing.T) {
	k := newKDC(t)
	c := k.client(t)
	get := func(service string, logins, grants int) {
		t.Helper()
		got, err := c.of(t.Context(), service)
		if err != nil {
			t.Fatal(err)
		}
		if name, _, _ := strings.Cut(service, "@"); got.SName.PrincipalNameString() != name {
			t.Errorf("a ticket for %v, not %s", got.SName, service)
		}
		if k.logins != logins || len(k.services) != grants {
			t.Errorf("after %s: %d logins and %d tickets, not %d and %d", service, k.logins, len(k.services), logins, grants)
		}
	}
	get("HTTP/127.0.0.1", 1, 1)
	get("HTTP/127.0.0.1@BED", 1, 1)
	get("rm/rm1.bed", 1, 2)
	refused, err := c.of(t.Context(), "rm/rm1.bed")
	if err != nil {
		t.Fatal(err)
	}
	c.forget(t.Context(), refused)
	get("HTTP/127.0.0.1", 1, 2)
	get("rm/rm1.bed", 1, 3)
	c.forget(t.Context(), c.have["rm/rm1.bed@BED"])
	k.fail = 1 // the login's ticket is refused
	get("rm/rm1.bed", 2, 5)

	old := c.have["rm/rm1.bed@BED"]
	old.start, old.end = time.Now().Add(-time.Hour), time.Now().Add(5*time.Minute) // less than a tenth is left
	c.have["rm/rm1.bed@BED"] = old
	get("rm/rm1.bed", 2, 6)
	c.have = map[string]ticket{}
	c.granting.end = time.Now()
	get("rm/rm1.bed", 3, 7)
}

// TestTicketsRefused checks that errors say what, who and what to do.
func TestTicketsRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*testKDC, *tickets)
		who    *Kerberos
		want   string
	}{
		"a wrong key": {who: kerberos(t, "waterline", "guessed"),
			want: "logging in to Kerberos as waterline@BED: .*PREAUTH_FAILED.*export the keytab again"},
		"a wrong key without pre-authentication": {who: kerberos(t, "waterline", "guessed"),
			change: func(k *testKDC, _ *tickets) { k.open = true }, want: "export the keytab again"},
		"clocks without pre-authentication": {change: func(k *testKDC, _ *tickets) { k.open, k.skew = true, -time.Hour },
			want: "this machine's clock differs from the KDC's by 1h0m[0-9]s; set the clocks right"},
		"an unknown client": {who: kerberos(t, "nobody", "x"),
			want: "logging in to Kerberos as nobody@BED: .*does not know this principal"},
		"an unknown service": {change: func(k *testKDC, _ *tickets) {
			k.keys.Entries = k.keys.Entries[:1]
			k.add(t, "krbtgt/BED", "x")
		}, want: "getting a Kerberos ticket for HTTP/127.0.0.1@BED as waterline@BED: .*has the host name"},
		"clocks": {change: func(k *testKDC, _ *tickets) { k.skew = time.Hour },
			want: "logging in to Kerberos as waterline@BED: .*clock was at .*set the clocks right"},
		"an address that nothing answers": {change: func(_ *testKDC, c *tickets) { c.send = direct },
			want: "no KDC answered.*127.0.0.1:1.*connection refused; check the addresses of kdc"},
		"a realm without KDC": {change: func(_ *testKDC, c *tickets) { c.config.Realms = nil },
			want: "names no kdc of the realm BED"},
		"a reply that is none": {change: func(_ *testKDC, c *tickets) {
			c.send = func(context.Context, string, []byte) ([]byte, error) { return []byte("HTTP/1.1 400"), nil }
		}, want: "the KDC's reply to the login"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := newKDC(t)
			if test.who == nil {
				test.who = kerberos(t, "waterline", "secret of waterline")
			}
			c := k.tickets(t, test.who)
			if test.change != nil {
				test.change(k, c)
			}
			_, err := c.of(t.Context(), "HTTP/127.0.0.1")
			var failed *KerberosError
			if !errors.As(err, &failed) {
				t.Fatalf("%v", err)
			}
			matches(t, err, test.want)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newKDC(t).client(t)
	c.turn <- struct{}{}
	if _, err := c.of(ctx, "HTTP/127.0.0.1"); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
}

// TestAuthRefused checks values that no client can be made of.
func TestAuthRefused(t *testing.T) {
	good := kerberos(t, "waterline", "x")
	including := *good
	including.Config = append([]byte("includedir /etc/krb5.conf.d/\n"), good.Config...)
	if _, err := (Auth{Kerberos: &including}).tickets(); err != nil {
		t.Errorf("a configuration that includes others: %v", err)
	}
	for want, change := range map[string]func(*Kerberos){
		"the Kerberos principal is \"\"":                            func(k *Kerberos) { k.Principal = "" },
		"it must be like waterline@":                                func(k *Kerberos) { k.Config = nil },
		"the Kerberos principal is \"a/":                            func(k *Kerberos) { k.Principal = "a/@BED" },
		"has no usable key of other@BED, but keys of waterline@BED": func(k *Kerberos) { k.Principal = "other" },
		"has no usable key of waterline@OTHER":                      func(k *Kerberos) { k.Principal = "waterline@OTHER" },
		"reading the keytab of waterline@BED":                       func(k *Kerberos) { k.Keytab = []byte("x") },
		"leave out blocks inside a realm": func(k *Kerberos) {
			k.Config = []byte("[realms]\n BED = {\n  auth_to_local_names = {\n   a = b\n  }\n }\n")
		},
	} {
		k := *good
		change(&k)
		if _, err := (Auth{Kerberos: &k}).tickets(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
	if _, err := NewNM(HTTPOptions{Auth: Auth{Kerberos: &Kerberos{}}}); err == nil {
		t.Error("a client of NodeManagers without a principal")
	}
	if _, err := NewNM(HTTPOptions{CA: []byte("x")}); err == nil {
		t.Error("certificates that are none")
	}
}

// TestKDCAnswersThatAreNone checks that a KDC cannot make the client take much memory or wait for long.
func TestKDCAnswersThatAreNone(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing": "", "too much": "\xff\xff\xff\xff", "cut off": "\x00\x00\x00\x09x",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_, _ = io.ReadFull(conn, make([]byte, 5))
				_, _ = io.WriteString(conn, answer)
				conn.Close()
			}
			l.Close()
		}()
		if _, err := direct(t.Context(), l.Addr().String(), []byte("x")); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := direct(ctx, silent.Addr().String(), []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a KDC that says nothing: %v", err)
	}
}

// FuzzKerberos checks that no configuration, keytab or reply of a KDC makes the client panic.
func FuzzKerberos(f *testing.F) {
	k := newKDC(f)
	good := kerberos(f, "waterline", "secret of waterline")
	c := k.client(f)
	send := c.send
	var replies [][]byte
	c.send = func(ctx context.Context, address string, request []byte) ([]byte, error) {
		reply, err := send(ctx, address, request)
		replies = append(replies, reply)
		return reply, err
	}
	if _, err := c.of(context.Background(), "HTTP/127.0.0.1"); err != nil {
		f.Fatal(err)
	}
	for _, reply := range replies {
		f.Add(good.Config, good.Keytab, reply)
	}
	f.Add([]byte("[realms]\n BED = {\n  auth_to_local_names = {\n  }\n }\n"), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, config, keytab, reply []byte) {
		_, _ = Auth{Kerberos: &Kerberos{Principal: "waterline@BED", Config: config, Keytab: keytab}}.tickets()
		c := k.tickets(t, good)
		first := true
		c.send = func(context.Context, string, []byte) ([]byte, error) {
			if !first {
				return nil, fmt.Errorf("no more")
			}
			first = false
			return reply, nil
		}
		if _, err := c.of(t.Context(), "HTTP/127.0.0.1"); err == nil {
			t.Error("a reply to another request is accepted")
		}
		c.granting = ticket{start: time.Now(), end: time.Now().Add(time.Hour)}
		first = true
		_, _ = c.of(t.Context(), "HTTP/127.0.0.1")
	})
}
