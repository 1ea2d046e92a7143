package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/keytab"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// testSecret makes the mistakes that a pool's Secret can have one after the other. Each shows as a condition with the
// cause and the fix, and goes soon after it was corrected.
func (y *yard) testSecret(t *testing.T) {
	const secrets = "/api/v1/namespaces/" + poolNamespace + "/secrets"
	set := func(data map[string]string) {
		encoded := map[string]string{}
		for key, value := range data {
			encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
		}
		body, err := json.Marshal(map[string]any{"data": encoded})
		if err != nil {
			t.Fatal(err)
		}
		if status := y.request(http.MethodPatch, secrets+"/hadoop", string(body)); status != http.StatusOK {
			t.Fatalf("writing the Secret: status %d", status)
		}
	}
	kt := keytab.New()
	err := kt.AddEntry("waterline", "EXAMPLE.COM", "secret", time.Now(), 1, etypeID.AES256_CTS_HMAC_SHA1_96)
	if err != nil {
		t.Fatal(err)
	}
	content, err := kt.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	p := y.rm(t, "secret", "elastic", quick, 10*time.Second, 10*time.Second)
	p.Break(fakerm.Faults{Kerberos: true})
	y.offer(t, "secret-0", "secret", cpuMemory(8, 16))
	y.create(t, strings.Replace(specOf("secret", p.address, ""), "label:", "authSecret: {name: hadoop}, label:", 1))
	complains := func(reason string, words ...string) {
		t.Helper()
		y.complains(t, "secret", v1alpha1.ConditionRMUnreachable, reason, append(words, "spec.yarn.authSecret")...)
	}
	complains("NoSecret", `secrets "hadoop" not found`, "keys principal, keytab and krb5.conf")
	body := `{"metadata":{"name":"hadoop"},"stringData":{"password":"x"}}`
	if status := y.request(http.MethodPost, secrets, body); status != http.StatusCreated {
		t.Fatalf("making the Secret: status %d", status)
	}
	complains("BadSecret", "lacks principal, keytab, krb5.conf")
	set(map[string]string{"principal": "hive@EXAMPLE.COM", "keytab": string(content)})
	complains("BadSecret", "lacks krb5.conf")
	set(map[string]string{"krb5.conf": "[realms]\n EXAMPLE.COM = {\n  kdc = 127.0.0.1:9\n }\n"})
	complains("BadSecret", "no usable key of hive@EXAMPLE.COM", "keys of waterline@EXAMPLE.COM")
	set(map[string]string{"principal": "waterline@EXAMPLE.COM"})
	complains("LoginFailed", "127.0.0.1:9", "check the addresses of kdc")
	if n := y.podsOf("secret"); n > 0 {
		t.Errorf("%d pods", n)
	}
	p.Break(fakerm.Faults{})
	if status := y.request(http.MethodPatch, poolPath+"secret", `{"spec":{"yarn":{"authSecret":null}}}`); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	y.active(t, "secret", 1)
	y.check(t, p)
}
