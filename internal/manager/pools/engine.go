package pools

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// perSecond and burst bound the requests to a ResourceManager, which has other work.
	perSecond, burst = 20, 20
	// labelsEvery is the time between two looks at the store of labels without doubt about it.
	labelsEvery = 10 * time.Second
	// maxRMAnswer and maxNMAnswer bound a list that a ResourceManager or a NodeManager answers, in bytes: room for 14,000
	// nodes and 4,000 containers. maxWhole bounds other answers. Lists are read one element after another, and what is not
	// of the pool is dropped: who answers may be a tenant.
	maxRMAnswer = 32 << 20
	maxNMAnswer = 4 << 20
	maxWhole    = 1 << 20
	// adminPort is the default port of the administration protocol.
	adminPort = "8033"
)

// engine is the YARN cluster of a pool.
type engine struct {
	spec     *v1alpha1.YARNSpec
	secret   map[string][]byte
	secure   bool // the manager logs in with Kerberos
	rm       *yarn.RM
	nm       *yarn.NM
	peers    *peers // of nm
	admin    *yarn.Admin
	single   time.Time // until then, resizes are sent one by one: the administration protocol failed
	requests atomic.Uint64

	// What was read of labels, and when. They are read again if there is doubt about them: the list of nodes, which is
	// read in each round, shows the labels too.
	label  bool
	hosts  map[string]string
	looked time.Time
	doubt  bool
}

// newEngine makes the clients. They connect when they are used. secret is the content of the pool's Secret. reason
// names the cause of an error.
func newEngine(
	spec *v1alpha1.YARNSpec, secret map[string][]byte, d *dialer,
) (e *engine, reason string, err error) {
	e = &engine{spec: spec.DeepCopy(), secret: secret}
	auth, base, err := identity(spec, secret, d)
	e.secure = auth.Kerberos != nil
	if err == nil {
		auth, err = auth.Shared() // the KDC gets one login for all clients
	}
	if err == nil { // first this client, which nothing but the Secret can be wrong for
		e.nm, e.peers, err = nodeManagers(auth, base, d.dialWorker)
	}
	if err != nil {
		return nil, "BadSecret", fmt.Errorf("spec.yarn.authSecret: Secret %s: %w", v1alpha1.NameOf(spec.AuthSecret), err)
	}
	limit := flowcontrol.NewTokenBucketRateLimiter(perSecond, burst)
	e.rm, err = yarn.NewRM(spec.ResourceManagers, yarn.HTTPOptions{
		Auth: auth, Transport: limited{base, limit, &e.requests}, MaxAnswer: maxRMAnswer, MaxWhole: maxWhole,
	})
	if err != nil {
		return nil, "Invalid", fmt.Errorf("spec.yarn.resourceManagers: %w", err)
	}
	addresses := spec.Admins
	if len(addresses) == 0 {
		for _, address := range spec.ResourceManagers {
			u, err := url.Parse(address)
			if err != nil {
				return nil, "Invalid", fmt.Errorf("spec.yarn.resourceManagers: %w", err)
			}
			addresses = append(addresses, net.JoinHostPort(u.Hostname(), adminPort))
		}
	}
	if e.admin, err = yarn.NewAdmin(addresses, e.rm, yarn.AdminOptions{Auth: auth, Dial: d.dial}); err != nil {
		return nil, "Invalid", fmt.Errorf("spec.yarn.admins: %w", err)
	}
	return e, "", nil
}

// The keys of the Secret of a pool.
const (
	keyPrincipal = "principal"
	keyKeytab    = "keytab"
	keyKrb5      = "krb5.conf"
	keyService   = "service" // the principal of the ResourceManager's RPC; without it, the one that the server names
	keyCA        = "ca.crt"
)

// identity returns who the manager is to the YARN cluster, and how it connects.
func identity(
	spec *v1alpha1.YARNSpec, secret map[string][]byte, d *dialer,
) (yarn.Auth, *http.Transport, error) {
	auth := yarn.Auth{User: spec.User}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext, base.Proxy = d.dial, nil // a proxy would connect to what the dialer does not see
	base.MaxIdleConnsPerHost = 8
	if spec.AuthSecret == nil {
		return auth, base, nil
	}
	ca := secret[keyCA]
	if len(ca) > 0 {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca) {
			return auth, nil, errors.New("its key " + keyCA + " has no certificate; write the authority's certificates in PEM")
		}
		base.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	needed := []string{keyPrincipal, keyKeytab, keyKrb5}
	lacks := slices.DeleteFunc(slices.Clone(needed), func(key string) bool { return len(secret[key]) > 0 })
	switch {
	case len(lacks) == len(needed) && len(ca) > 0: // it is for https only
		return auth, base, nil
	case len(lacks) > 0:
		return auth, nil, fmt.Errorf("it lacks %s, or they are empty; Kerberos needs the keys %s, and https alone the key %s",
			strings.Join(lacks, ", "), strings.Join(needed, ", "), keyCA)
	}
	auth.Kerberos = &yarn.Kerberos{
		Principal: strings.TrimSpace(string(secret[keyPrincipal])), Keytab: secret[keyKeytab], Config: secret[keyKrb5],
		Service: strings.TrimSpace(string(secret[keyService])), Dial: d.dial,
	}
	return auth, base, nil
}

// limited counts requests, and lets them wait so that there are not too many.
type limited struct {
	to    http.RoundTripper
	limit flowcontrol.RateLimiter
	count *atomic.Uint64
}

// RoundTrip implements [http.RoundTripper].
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := l.limit.Wait(r.Context()); err != nil {
		return nil, fmt.Errorf("waiting, because more than %d requests a second are too many: %w", perSecond, err)
	}
	l.count.Add(1)
	return l.to.RoundTrip(r)
}

// view is what a ResourceManager shows.
type view struct {
	info  yarn.Info
	label bool                   // the pool's label exists
	nodes map[string][]yarn.Node // by host
	hosts map[string]string      // label, by host:port or host:0
	// listed is how many containers the NodeManager of a worker has by its own account, where it was asked.
	listed map[string]int
}

// unlisted stands for the number of containers of a NodeManager that did not answer.
const unlisted = -1

// look asks the ResourceManager for everything that a round needs of some hosts.
func (e *engine) look(ctx context.Context, ours func(host string) bool) (*view, error) {
	asking, cancel := context.WithTimeout(ctx, activeWithin)
	info, err := e.rm.Active(asking)
	if cancel(); err != nil {
		return nil, err
	}
	v := &view{info: info, nodes: map[string][]yarn.Node{}}
	nodes, err := e.rm.NodesOf(ctx, ours)
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range nodes {
		host, _, err := net.SplitHostPort(n.ID)
		if err != nil {
			host = n.Host
		}
		v.nodes[strings.ToLower(host)] = append(v.nodes[strings.ToLower(host)], n)
	}
	if err := e.lookAtLabels(ctx); err != nil {
		return nil, err
	}
	v.label, v.hosts = e.label, e.hosts
	return v, nil
}

// lookAtLabels reads the labels, unless they were read a moment ago.
func (e *engine) lookAtLabels(ctx context.Context) error {
	if !e.doubt && time.Since(e.looked) < labelsEvery {
		return nil
	}
	labels, err := e.rm.Labels(ctx)
	if err != nil {
		return fmt.Errorf("listing node labels: %w", err)
	}
	hosts, err := e.rm.NodeLabels(ctx)
	if err != nil {
		return fmt.Errorf("listing the labels of nodes: %w", err)
	}
	e.label = slices.ContainsFunc(labels, func(l yarn.Label) bool { return l.Name == e.spec.Label.Name })
	e.hosts, e.looked, e.doubt = hosts, time.Now(), false
	return nil
}

// readExcludes makes the ResourceManager read its exclude file. within is the time for hosts without one of their own.
func (e *engine) readExcludes(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	if err := e.admin.RefreshNodesGracefully(ctx, within); err != nil {
		return fmt.Errorf("the ResourceManager did not read the exclude file; check spec.yarn.admins, and that "+
			"spec.yarn.user is in yarn.admin.acl: %w", err)
	}
	return nil
}

// labelOf returns the label of a worker in the ResourceManager's store.
func (v *view) labelOf(pl *place) string {
	own, all := net.JoinHostPort(pl.host, strconv.Itoa(nmPort)), net.JoinHostPort(pl.host, "0")
	for _, id := range []string{pl.labelled, own, all} {
		if label, found := v.hosts[id]; found {
			return label
		}
	}
	return ""
}

// managers returns the NodeManagers on a host, and whether what is shown of them is true: while the ResourceManager
// resizes one, it is not.
func (v *view) managers(host string) (all []pool.Manager, settled bool) {
	settled = true
	for _, n := range v.nodes[strings.ToLower(host)] {
		if _, port, err := net.SplitHostPort(n.ID); err == nil && port != strconv.Itoa(nmPort) {
			continue // of somebody else, in the network of the node
		}
		settled = settled && (n.State != yarn.NodeRunning || n.Settled())
		m := pool.Manager{
			ID: n.ID, State: string(n.State), Health: n.HealthReport,
			Total: size(n.Total), Used: size(n.Used), Containers: n.Containers, Listed: n.Containers,
		}
		if len(n.Labels) > 0 {
			m.Label = n.Labels[0]
		}
		all = append(all, m)
	}
	return all, settled
}

func size(r yarn.Resource) pool.Size { return pool.Size{MemoryMiB: r.MemoryMiB, VCores: r.VCores} }
