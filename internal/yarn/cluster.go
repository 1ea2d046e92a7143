package yarn

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxRMAnswer and maxNMAnswer bound a list that a ResourceManager or a NodeManager answers, in bytes: room for 14,000
	// nodes and 4,000 containers. maxWhole bounds other answers. Lists are read one element after another, and what is not
	// asked for is dropped: who answers may be a tenant.
	maxRMAnswer = 32 << 20
	maxNMAnswer = 4 << 20
	maxWhole    = 1 << 20
	// nmTimeout bounds the question to one NodeManager. Many may be hung.
	nmTimeout = time.Second
	// adminPort is the default port of the administration protocol.
	adminPort = "8033"
)

// Dial connects to an address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Endpoint is a cluster, and who the manager is to it.
type Endpoint struct {
	ResourceManagers []string // base addresses of their web services
	Admins           []string // host:port of their administration; none: port 8033 of the same hosts
	User             string   // without Kerberos
	Secret           Secret
}

// ClusterOptions say how to reach a cluster.
type ClusterOptions struct {
	Endpoint
	// Dial makes all connections except those to NodeManagers, which DialWorker makes.
	Dial, DialWorker Dial
	// Wait returns when the next request to a ResourceManager may be sent; nil: at once.
	Wait func(context.Context) error
	// Logins has the refused logins of other clusters too; nil: only those of this one count.
	Logins *Logins
}

// Cluster has the clients of one cluster. They connect when they are used.
type Cluster struct {
	RM       *RM
	NM       *NM
	Admin    *Admin
	Requests atomic.Uint64 // to ResourceManagers
	secure   bool          // the web services are https
	peers    *peers
}

// SecretError is an error of a [Secret].
type SecretError struct{ Err error }

func (e *SecretError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SecretError) Unwrap() error { return e.Err }

// NewCluster makes the clients of a cluster. What is wrong with the Secret is a [SecretError].
func NewCluster(o ClusterOptions) (*Cluster, error) {
	c := &Cluster{peers: &peers{connect: o.DialWorker, addresses: map[string]string{}}}
	c.secure = len(o.ResourceManagers) > 0 && strings.HasPrefix(o.ResourceManagers[0], "https:")
	auth, base, err := o.Secret.identity(o.User, o.Dial)
	if err == nil && auth.Kerberos != nil {
		auth.Kerberos.Logins = o.Logins
	}
	if err == nil {
		auth, err = auth.Shared() // the KDC gets one login for all clients
	}
	if err == nil { // first this client, which nothing but the Secret can be wrong for
		c.NM, err = newPeerNM(auth, base, c.peers)
	}
	if err != nil {
		return nil, &SecretError{err}
	}
	c.RM, err = NewRM(o.ResourceManagers, HTTPOptions{
		Auth: auth, Transport: limited{base, o.Wait, &c.Requests}, MaxAnswer: maxRMAnswer, MaxWhole: maxWhole,
	})
	if err != nil {
		return nil, fmt.Errorf("resourceManagers: %w", err)
	}
	admins := slices.Clone(o.Admins)
	if len(admins) == 0 {
		for _, address := range o.ResourceManagers {
			u, err := url.Parse(address)
			if err != nil {
				return nil, fmt.Errorf("resourceManagers: %w", err)
			}
			admins = append(admins, net.JoinHostPort(u.Hostname(), adminPort))
		}
	}
	if c.Admin, err = NewAdmin(admins, AdminOptions{Auth: auth, Dial: o.Dial}); err != nil {
		return nil, fmt.Errorf("admins: %w", err)
	}
	return c, nil
}

// Locate sets the address of a NodeManager's host, and returns the base address of its web services. Their scheme is
// the ResourceManager's: yarn.http.policy is one for both.
func (c *Cluster) Locate(host, ip string) (base string) {
	c.peers.mu.Lock()
	defer c.peers.mu.Unlock()
	c.peers.addresses[host] = ip
	if c.secure {
		return "https://" + net.JoinHostPort(host, strconv.Itoa(SecureWebPort))
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(WebPort))
}

// The default ports of the web services of a NodeManager, by yarn.http.policy.
const (
	WebPort       = 8042
	SecureWebPort = 8044
)

// Secret is who the manager is to a cluster, by key, as in a Secret of Kubernetes. Without a value it is nobody.
type Secret map[string][]byte

// The keys of a [Secret].
const (
	KeyPrincipal = "principal"
	KeyKeytab    = "keytab"
	KeyKrb5      = "krb5.conf"
	KeyService   = "service" // the principal of the ResourceManager's RPC; without it, the one that the server names
	KeyCA        = "ca.crt"
)

// identity returns who the manager is to the cluster, and how it connects.
func (s Secret) identity(user string, dial Dial) (Auth, *http.Transport, error) {
	auth := Auth{User: user}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext, base.Proxy = dial, nil // a proxy would connect to what dial does not see
	base.MaxIdleConnsPerHost = 8
	if s == nil {
		return auth, base, nil
	}
	ca := s[KeyCA]
	if len(ca) > 0 {
		if err := trust(base, ca); err != nil {
			return auth, nil, fmt.Errorf("its key %s: %w", KeyCA, err)
		}
	}
	needed := []string{KeyPrincipal, KeyKeytab, KeyKrb5}
	lacks := slices.DeleteFunc(slices.Clone(needed), func(key string) bool { return len(s[key]) > 0 })
	switch {
	case len(lacks) == len(needed) && len(ca) > 0: // it is for https only
		return auth, base, nil
	case len(lacks) > 0:
		return auth, nil, fmt.Errorf("it lacks %s, or they are empty; Kerberos needs the keys %s, and https alone the key %s",
			strings.Join(lacks, ", "), strings.Join(needed, ", "), KeyCA)
	}
	auth.Kerberos = &Kerberos{
		Principal: strings.TrimSpace(string(s[KeyPrincipal])), Keytab: s[KeyKeytab], Config: s[KeyKrb5],
		Service: strings.TrimSpace(string(s[KeyService])), Dial: dial,
	}
	return auth, base, nil
}

// limited counts requests, and lets them wait so that there are not too many.
type limited struct {
	to    http.RoundTripper
	wait  func(context.Context) error
	count *atomic.Uint64
}

// RoundTrip implements [http.RoundTripper].
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.wait != nil {
		if err := l.wait(r.Context()); err != nil {
			return nil, fmt.Errorf("waiting, because there are too many requests to the ResourceManager: %w", err)
		}
	}
	l.count.Add(1)
	return l.to.RoundTrip(r)
}

// peers are the addresses of NodeManagers by host. A URL has the name of a NodeManager, which its certificate and its
// Kerberos principal have too. The connection goes to the address of its pod, which needs no DNS, and which is the
// pod's own, whatever the name resolves to.
type peers struct {
	connect   Dial
	mu        sync.Mutex
	addresses map[string]string
}

// dial connects to the address of a host.
func (p *peers) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, fmt.Errorf("connecting to a NodeManager: %w", err)
	}
	p.mu.Lock()
	address, known := p.addresses[host]
	p.mu.Unlock()
	if !known {
		return nil, fmt.Errorf("connecting to %s: the address of its pod is not known", hostPort)
	}
	return p.connect(ctx, network, net.JoinHostPort(address, port))
}

// newPeerNM returns a client of NodeManagers. A connection is used once: the next pod of a host has another address.
func newPeerNM(auth Auth, base *http.Transport, p *peers) (*NM, error) {
	transport := base.Clone()
	transport.DialContext, transport.DisableKeepAlives, transport.Proxy = p.dial, true, nil
	return NewNM(HTTPOptions{
		Auth: auth, Transport: transport, Timeout: nmTimeout, MaxAnswer: maxNMAnswer, MaxWhole: maxWhole,
	})
}
