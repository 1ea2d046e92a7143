package yarn

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/types"
)

// Auth says who the caller is and how to prove it. The clients of one cluster can share one value.
type Auth struct {
	// User is the caller's name where Hadoop's authentication is "simple"; "": none. With Kerberos, only requests to web
	// services carry it, because Hadoop can be set up with Kerberos for RPC and "simple" for the web.
	User string
	// Kerberos is used where the cluster asks for it; nil: never.
	Kerberos *Kerberos

	shared *tickets // of clients that log in together; nil: each does for itself
}

// Shared returns the same caller, whose clients log in together: there is one login for all of them, and a keytab that
// the KDC refuses is refused once.
func (a Auth) Shared() (Auth, error) {
	shared, err := a.tickets()
	a.shared = shared
	return a, err
}

// Kerberos identifies the caller by a Kerberos principal and its key. Each client logs in when it first has to, and
// again before its tickets expire. It talks to the KDC over TCP.
//
// A client reads these values once. After a new key was made for the principal, make a new client.
type Kerberos struct {
	// Principal is the caller, such as waterline@EXAMPLE.COM. Without a realm, it is in default_realm of Config.
	Principal string
	// Keytab is the content of a keytab file with a key of Principal.
	Keytab []byte
	// Config is the content of a krb5.conf with default_realm and the realm's kdc, or dns_lookup_kdc. Lines before the
	// first section, which can include other files, are ignored.
	Config []byte
	// Service is the principal of the ResourceManagers' RPC, as in the property yarn.resourcemanager.principal, such as
	// rm/_HOST@EXAMPLE.COM. _HOST stands for the host that is called. If it is empty, the client believes the principal
	// that the server names, so any service of the realm can pose as the ResourceManager. Web services are always
	// HTTP/_HOST.
	Service string
	// Dial makes the connections to KDCs; that of [net.Dialer] if nil.
	Dial Dial
	// Logins has the refused logins of other clients too; nil: only those of this value's clients count.
	Logins *Logins
}

// tickets returns what gets Kerberos tickets for these values, or nil if there are none.
func (a Auth) tickets() (*tickets, error) {
	k := a.Kerberos
	if k == nil || a.shared != nil {
		return a.shared, nil
	}
	name, realm, _ := strings.Cut(k.Principal, "@")
	t := &tickets{
		have: map[string]ticket{}, replied: map[string]string{}, turn: make(chan struct{}, 1), service: k.Service,
		logins: k.Logins, caller: callerOf(k),
	}
	if t.logins == nil {
		t.logins = &Logins{}
	}
	dial := k.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t.send = askKDC(dial)
	err := withoutPanic(func() (err error) {
		// gokrb5 keeps the lines that it knows when it complains of others.
		t.config, err = config.NewFromReader(bytes.NewReader(k.Config))
		if errors.As(err, new(config.UnsupportedDirective)) && t.config != nil {
			err = nil
		}
		return err
	})
	if errors.Is(err, errPanic) {
		err = fmt.Errorf("%w; leave out blocks inside a realm, such as auth_to_local_names", err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Kerberos configuration for %s: %w", k.Principal, err)
	}
	if realm == "" {
		realm = t.config.LibDefaults.DefaultRealm
	}
	if name == "" || realm == "" || slices.Contains(strings.Split(name, "/"), "") {
		return nil, fmt.Errorf("the Kerberos principal is %q; it must be like waterline@EXAMPLE.COM, or the configuration "+
			"must have a default_realm", k.Principal)
	}
	t.name, t.realm = types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, name), realm
	t.principal = name + "@" + realm
	t.keytab = keytab.New()
	if err := withoutPanic(func() error { return t.keytab.Unmarshal(k.Keytab) }); err != nil {
		return nil, fmt.Errorf("reading the keytab of %s: %w", t.principal, err)
	}
	if t.etypes = keyTypes(t.keytab, t.name, realm); len(t.etypes) == 0 {
		return nil, fmt.Errorf("the keytab has no usable key of %s, but keys of %s; give one with this principal, or the "+
			"principal of this one", t.principal, holders(t.keytab))
	}
	if len(t.config.LibDefaults.DefaultTGSEnctypeIDs) == 0 {
		return nil, fmt.Errorf("the Kerberos configuration for %s permits no encryption type for default_tgs_enctypes",
			t.principal)
	}
	return t, nil
}

// keyTypes returns the encryption types of a principal's keys, the preferred one first.
func keyTypes(kt *keytab.Keytab, name types.PrincipalName, realm string) []int32 {
	var found []int32
	for _, e := range []int32{etypeID.AES256_CTS_HMAC_SHA1_96, etypeID.AES256_CTS_HMAC_SHA384_192,
		etypeID.AES128_CTS_HMAC_SHA1_96, etypeID.AES128_CTS_HMAC_SHA256_128, etypeID.RC4_HMAC} {
		known, err := crypto.GetEtype(e)
		if err != nil {
			continue
		}
		if key, _, err := kt.GetEncryptionKey(name, realm, 0, e); err == nil && len(key.KeyValue) == known.GetKeyByteSize() {
			found = append(found, e)
		}
	}
	return found
}

// holders lists the principals of a keytab.
func holders(kt *keytab.Keytab) string {
	const most = 5
	var all []string
	for _, e := range kt.Entries {
		name := strings.Join(e.Principal.Components, "/") + "@" + e.Principal.Realm
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return "nobody"
	}
	if len(all) > most {
		all = append(all[:most], "others")
	}
	return strings.Join(all, ", ")
}

// errPanic is the error if gokrb5 panicked.
var errPanic = errors.New("it cannot be read")

// withoutPanic calls a function of gokrb5 that reads bytes from outside. Version 8.4.4 was seen to panic on a
// configuration with a block inside a realm.
func withoutPanic(read func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errPanic, r)
		}
	}()
	return read()
}
