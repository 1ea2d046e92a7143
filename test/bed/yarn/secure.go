package yarn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	rmHTTPSPort  = 8090
	keystorePass = "of-the-bed"
)

// makeCertificate makes the ResourceManager's key and its certificate, which is its own authority.
func (b *Bed) makeCertificate() error {
	keytool := filepath.Join(b.java, "bin/keytool")
	store := []string{"-keystore", b.keystore(), "-storetype", "PKCS12", "-storepass", keystorePass, "-alias", "rm"}
	for _, args := range [][]string{
		append([]string{"-genkeypair", "-keyalg", "EC", "-dname", "CN=" + RMHost(1), "-ext", "SAN=dns:" + RMHost(1)},
			store...),
		append([]string{"-exportcert", "-rfc", "-file", b.ca()}, store...),
	} {
		if out, err := exec.Command(keytool, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("making the ResourceManager's certificate: %w: %s", err, out)
		}
	}
	return nil
}

func (b *Bed) keystore() string { return b.in("kdc", "rm.p12") }
func (b *Bed) ca() string       { return b.in("kdc", "ca.pem") }

// HTTPOptions returns how a client reaches the cluster's web services.
func (b *Bed) HTTPOptions(client string) (o yarn.HTTPOptions, err error) {
	if o.Auth, err = b.Auth(client); err == nil && b.secure {
		o.CA, err = os.ReadFile(b.ca())
	}
	return o, err
}

// secureCore returns what core-site.xml has more with Kerberos.
func (b *Bed) secureCore() properties {
	return properties{
		"hadoop.security.authentication":                      "kerberos",
		"hadoop.rpc.protection":                               "authentication,integrity,privacy",
		"hadoop.http.filter.initializers":                     "org.apache.hadoop.security.AuthenticationFilterInitializer",
		"hadoop.http.authentication.type":                     "kerberos",
		"hadoop.http.authentication.kerberos.principal":       "HTTP/_HOST@" + Realm,
		"hadoop.http.authentication.kerberos.keytab":          b.keytab("rm1"),
		"hadoop.http.authentication.signature.secret.file":    b.in("conf", "secret"),
		"hadoop.http.authentication.simple.anonymous.allowed": "false",
	}
}

// secureYARN returns what yarn-site.xml has more with Kerberos.
func (b *Bed) secureYARN() properties {
	return properties{
		"yarn.admin.acl":                                 Admin + "," + Brief,
		"yarn.acl.enable":                                "true",
		"yarn.resourcemanager.principal":                 "rm/_HOST@" + Realm,
		"yarn.resourcemanager.keytab":                    b.keytab("rm1"),
		"yarn.resourcemanager.webapp.spnego-principal":   "HTTP/_HOST@" + Realm,
		"yarn.resourcemanager.webapp.spnego-keytab-file": b.keytab("rm1"),
		"yarn.resourcemanager.webapp.https.address":      fmt.Sprintf("%s:%d", RMHost(1), rmHTTPSPort),
		"yarn.http.policy":                               "HTTPS_ONLY",
		"yarn.nodemanager.principal":                     "nm/_HOST@" + Realm,
		"yarn.nodemanager.webapp.spnego-principal":       "HTTP/_HOST@" + Realm,
	}
}

// secureNode returns what a NodeManager is told more with Kerberos. Its web services are without TLS.
func (b *Bed) secureNode(name, host string) properties {
	return properties{
		// It would put the machine's host name in place of _HOST.
		"yarn.nodemanager.principal":                 "nm/" + host + "@" + Realm,
		"yarn.http.policy":                           "HTTP_ONLY",
		"yarn.nodemanager.keytab":                    b.keytab(name),
		"yarn.nodemanager.webapp.spnego-keytab-file": b.keytab(name),
		"hadoop.http.authentication.kerberos.keytab": b.keytab(name),
	}
}

// sslServer returns what ssl-server.xml has.
func (b *Bed) sslServer() properties {
	return properties{
		"ssl.server.keystore.location":    b.keystore(),
		"ssl.server.keystore.type":        "pkcs12",
		"ssl.server.keystore.password":    keystorePass,
		"ssl.server.keystore.keypassword": keystorePass,
	}
}

// Protect sets which protections of RPC daemons offer that start from now on: authentication, integrity or privacy, or
// several with commas between.
func (b *Bed) Protect(protections string) error {
	core := b.secureCore()
	core["hadoop.rpc.protection"] = protections
	const name = "core-site.xml"
	return os.WriteFile(filepath.Join(b.layout.Conf, name), []byte(b.layout.files(core, nil)[name]), 0o644)
}
