package yarn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	rmHTTPSPort  = 8090
	keystorePass = "of-the-bed"
)

// makeCertificate makes a key and its certificate, which is its own authority, for one or more hosts. Clients trust it.
func (b *Bed) makeCertificate(name string, hosts ...string) error {
	keytool := filepath.Join(b.java, "bin/keytool")
	store := []string{"-keystore", b.keystore(name), "-storetype", "PKCS12", "-storepass", keystorePass, "-alias", name}
	names := "SAN=dns:" + strings.Join(hosts, ",dns:")
	if out, err := exec.Command(keytool, append([]string{"-genkeypair", "-keyalg", "EC", "-dname", "CN=" + name, "-ext",
		names}, store...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("making the key of %s: %w: %s", name, err, out)
	}
	certificate, err := exec.Command(keytool, append([]string{"-exportcert", "-rfc"}, store...)...).Output()
	if err != nil {
		return fmt.Errorf("reading the certificate of %s: %w", name, err)
	}
	file, err := os.OpenFile(b.ca(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("trusting the certificate of %s: %w", name, err)
	}
	_, err = file.Write(certificate)
	return errors.Join(err, file.Close())
}

func (b *Bed) keystore(name string) string { return b.in("kdc", name+".p12") }
func (b *Bed) ca() string                  { return b.in("kdc", "ca.pem") }

// SecureWorkers gives NodeManagers that run as in pods what a cluster with Kerberos and https asks of them: keys and a
// certificate for their hosts. It returns further properties of their yarn-site.xml, and their ssl-server.xml.
func (b *Bed) SecureWorkers(hosts ...string) (site map[string]string, sslServer string, err error) {
	const name = "workers"
	var principals []string
	for _, host := range hosts {
		principals = append(principals, "nm/"+host, "HTTP/"+host)
	}
	err = errors.Join(b.addPrincipals(name, "", principals...), b.makeCertificate(name, hosts...))
	return properties{
		"yarn.nodemanager.principal":                    "nm/${env.WATERLINE_HOST}@" + Realm,
		"yarn.nodemanager.keytab":                       b.keytab(name),
		"yarn.nodemanager.webapp.spnego-principal":      "HTTP/${env.WATERLINE_HOST}@" + Realm,
		"yarn.nodemanager.webapp.spnego-keytab-file":    b.keytab(name),
		"hadoop.http.authentication.kerberos.principal": "HTTP/${env.WATERLINE_HOST}@" + Realm,
		"hadoop.http.authentication.kerberos.keytab":    b.keytab(name),
	}, b.sslServer(name).file(), err
}

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
func (b *Bed) sslServer(name string) properties {
	return properties{
		"ssl.server.keystore.location":    b.keystore(name),
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
