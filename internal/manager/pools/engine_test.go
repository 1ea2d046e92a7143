package pools

import (
	"strings"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/keytab"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/yarn"
)

// keytabOf returns a keytab with a key of a principal of EXAMPLE.COM.
func keytabOf(t *testing.T, name string) string {
	t.Helper()
	kt := keytab.New()
	if err := kt.AddEntry(name, "EXAMPLE.COM", "secret", time.Now(), 1, etypeID.AES256_CTS_HMAC_SHA1_96); err != nil {
		t.Fatal(err)
	}
	content, err := kt.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// clusterOf makes the clients of a pool's cluster.
func clusterOf(spec *v1alpha1.YARNSpec, secret map[string][]byte, d *dialer) (*yarn.Cluster, string, error) {
	return newCluster(endpoint(spec, secret), v1alpha1.NameOf(spec.AuthSecret), d, nil)
}

// TestSecret checks that each mistake in a Secret is named, with the fix.
func TestSecret(t *testing.T) {
	const config = "[libdefaults]\n default_realm = EXAMPLE.COM\n[realms]\n EXAMPLE.COM = {\n  kdc = 127.0.0.1:9\n }\n"
	kt := keytabOf(t, "waterline")
	for about, c := range map[string]struct {
		secret map[string]string
		reason string
		words  []string // of the error; nil: there is none
	}{
		"complete": {
			secret: map[string]string{yarn.KeyPrincipal: "waterline@EXAMPLE.COM\n", yarn.KeyKeytab: kt, yarn.KeyKrb5: config},
		},
		"the realm of krb5.conf": {secret: map[string]string{
			yarn.KeyPrincipal: "waterline", yarn.KeyKeytab: kt, yarn.KeyKrb5: config,
		}},
		"empty": {reason: "BadSecret",
			words: []string{"Secret hadoop", "lacks principal, keytab, krb5.conf", "ca.crt"}},
		"other names": {secret: map[string]string{"password": "x", "Keytab": kt}, reason: "BadSecret",
			words: []string{"lacks principal, keytab, krb5.conf"}},
		"two are missing": {secret: map[string]string{yarn.KeyPrincipal: "waterline", yarn.KeyKrb5: ""}, reason: "BadSecret",
			words: []string{"lacks keytab, krb5.conf"}},
		"a keytab of text": {secret: map[string]string{
			yarn.KeyPrincipal: "waterline", yarn.KeyKeytab: "x", yarn.KeyKrb5: config},
			reason: "BadSecret", words: []string{"spec.yarn.authSecret", "keytab of waterline@EXAMPLE.COM"}},
		"another's keytab": {
			secret: map[string]string{yarn.KeyPrincipal: "waterline", yarn.KeyKeytab: keytabOf(t, "hive"), yarn.KeyKrb5: config},
			reason: "BadSecret", words: []string{"no usable key of waterline@EXAMPLE.COM", "hive@EXAMPLE.COM"}},
		"no realm": {secret: map[string]string{
			yarn.KeyPrincipal: "waterline", yarn.KeyKeytab: kt, yarn.KeyKrb5: "[libdefaults]\n"},
			reason: "BadSecret", words: []string{"default_realm"}},
		"no certificate": {secret: map[string]string{yarn.KeyCA: "x"}, reason: "BadSecret",
			words: []string{"ca.crt", "PEM"}},
	} {
		secret := map[string][]byte{}
		for key, value := range c.secret {
			secret[key] = []byte(value)
		}
		made, reason, err := clusterOf(&v1alpha1.YARNSpec{
			ResourceManagers: []string{"http://rm.example:8088"}, AuthSecret: &v1alpha1.ObjectReference{Name: "hadoop"},
			ExcludeFile: "x",
		}, secret, dialerOf(t))
		if len(c.words) == 0 {
			if err != nil || made.RM == nil || made.NM == nil || made.Admin == nil {
				t.Errorf("%s: %v", about, err)
			}
			continue
		}
		if err == nil || reason != c.reason {
			t.Errorf("%s: reason %q, %v; want %q", about, reason, err, c.reason)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v; want %q in it", about, err, word)
			}
		}
	}
}
