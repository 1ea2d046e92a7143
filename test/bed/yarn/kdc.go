package yarn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
)

// Realm is the Kerberos realm of a cluster with [Options.Kerberos].
const Realm = "BED"

// Principals of clients, in [Realm]. [Bed.Auth] has their keys.
const (
	Admin = "waterline" // named by yarn.admin.acl
	Guest = "guest"     // not named by it
	// Brief is named by it. Its tickets expire after [BriefLife].
	Brief = "brief"
	// Outdated is the principal Admin with a key that the KDC had before.
	Outdated = "outdated"
)

// BriefLife is how long the tickets of [Brief] live.
const BriefLife = 5 * time.Second

const (
	kdcHost    = "kdc.bed"
	kdcAddress = "127.1.0.4:88"
)

// Java asks by UDP first, unless told not to.
const krb5Conf = `[libdefaults]
  default_realm = %[1]s
  dns_lookup_kdc = false
  dns_lookup_realm = false
  rdns = false
  udp_preference_limit = 1
[realms]
  %[1]s = {
    kdc = %[2]s
  }
`

const kdcConf = `[kdcdefaults]
  kdc_listen = %[1]s
  kdc_tcp_listen = %[1]s
[realms]
  %[2]s = {
    database_name = %[3]s/principal
    key_stash_file = %[3]s/stash
    acl_file = %[3]s/acl
    default_principal_flags = +preauth
    supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  }
[logging]
  kdc = STDERR
  default = STDERR
`

// startKDC makes a realm with the principals of the ResourceManager and of clients, and runs its KDC. It uses Debian's
// packages krb5-kdc and krb5-admin-server, and none of their configuration.
func (b *Bed) startKDC() error {
	for _, program := range []string{"krb5kdc", "kdb5_util", "kadmin.local"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the bed's Kerberos needs %s; install krb5-kdc and krb5-admin-server: %w", program, err)
		}
	}
	files := map[string]string{
		"krb5.conf": fmt.Sprintf(krb5Conf, Realm, kdcHost),
		"kdc.conf":  fmt.Sprintf(kdcConf, kdcAddress, Realm, b.in("kdc")),
	}
	for name, content := range files {
		if err := os.MkdirAll(b.in("kdc"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(b.in("kdc", name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	create := b.kerberos("kdb5_util", "create", "-s", "-r", Realm, "-P", "of the test bed")
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("making the Kerberos realm: %w: %s", err, out)
	}
	for principal, flags := range map[string]string{
		Admin: "", Guest: "", Brief: fmt.Sprintf(`-maxlife "%.0f seconds"`, BriefLife.Seconds()),
	} {
		if err := b.addPrincipals(principal, flags, principal); err != nil {
			return err
		}
	}
	// Exporting a key makes a new one.
	if err := os.Rename(b.keytab(Admin), b.keytab(Outdated)); err != nil {
		return err
	}
	if err := b.kadmin("ktadd -k " + b.keytab(Admin) + " " + Admin); err != nil {
		return err
	}
	if err := b.addPrincipals("rm1", "", "rm/"+RMHost(1), "HTTP/"+RMHost(1)); err != nil {
		return err
	}
	b.kdc = &Daemon{name: "kdc", log: filepath.Join(b.logs, "kdc.log"), new: func() *exec.Cmd {
		return b.kerberos("krb5kdc", "-n", "-r", Realm)
	}}
	if err := b.kdc.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return Eventually(ctx, func(context.Context) error {
		conn, err := net.Dial("tcp", kdcAddress)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// kerberos returns a command that uses the bed's realm.
func (b *Bed) kerberos(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "KRB5_CONFIG="+b.in("kdc", "krb5.conf"), "KRB5_KDC_PROFILE="+b.in("kdc", "kdc.conf"))
	return c
}

// kadmin changes the realm. Its program exits with success when a change failed, but says so.
func (b *Bed) kadmin(commands ...string) error {
	c := b.kerberos("kadmin.local", "-r", Realm)
	c.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := c.CombinedOutput()
	if err == nil && bytes.Contains(out, []byte("while ")) {
		err = errors.New("it complains")
	}
	if err != nil {
		return fmt.Errorf("changing the Kerberos realm: %w: %s", err, out)
	}
	return nil
}

// addPrincipals adds principals to the realm and writes their keys to one keytab.
func (b *Bed) addPrincipals(keytab, flags string, principals ...string) error {
	var commands []string
	for _, p := range principals {
		commands = append(commands, "addprinc -randkey "+flags+" "+p, "ktadd -k "+b.keytab(keytab)+" "+p)
	}
	return b.kadmin(commands...)
}

// NewKey makes a new key of a ResourceManager's principal, HTTP or rm. If export is set, it adds the key to the
// ResourceManager's keytab, beside those before.
func (b *Bed) NewKey(service string, export bool) error {
	principal := service + "/" + RMHost(1)
	if export {
		return b.kadmin("ktadd -k " + b.keytab("rm1") + " " + principal)
	}
	return b.kadmin("cpw -randkey " + principal)
}

func (b *Bed) keytab(name string) string { return b.in("kdc", name+".keytab") }

// Auth returns what authenticates a client: a principal, such as [Admin]. In a cluster without Kerberos it is the user
// of that name.
func (b *Bed) Auth(client string) (yarn.Auth, error) {
	if !b.secure {
		return yarn.Auth{User: client}, nil
	}
	k := &yarn.Kerberos{Principal: client + "@" + Realm, Service: "rm/_HOST@" + Realm}
	if client == Outdated {
		k.Principal = Admin + "@" + Realm
	}
	var err error
	if k.Config, err = os.ReadFile(b.in("kdc", "krb5.conf")); err != nil {
		return yarn.Auth{}, err
	}
	if k.Keytab, err = os.ReadFile(b.keytab(client)); err != nil {
		return yarn.Auth{}, err
	}
	return yarn.Auth{Kerberos: k}, nil
}

// KDC returns the process that gives tickets, or nil without Kerberos.
func (b *Bed) KDC() *Daemon { return b.kdc }

// Log returns what a daemon logged so far.
func (d *Daemon) Log() (string, error) {
	content, err := os.ReadFile(d.log)
	return string(content), err
}
