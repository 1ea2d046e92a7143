// Command waterline-manager is the cluster side of Waterline. Every replica serves the webhook that makes batch pods
// request batch resources. The leader also withdraws the offers of nodes without an agent, carries out evictions that
// nodes request, carries out worker pools, and writes the status of policies.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/internal/decide/cluster/reach"
	"github.com/waterline-io/waterline/internal/manager"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/manager/certs"
	"github.com/waterline-io/waterline/internal/manager/pools"
	"github.com/waterline-io/waterline/internal/manager/uninstall"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/program"
	"github.com/waterline-io/waterline/internal/program/limited"
	"github.com/waterline-io/waterline/internal/web"
)

// version is set when a release is built.
var version = "dev"

// shutdownTimeout is the time for open requests after the context ended, and before that the time for clients to
// notice.
const shutdownTimeout = 5 * time.Second

type options struct {
	kubeconfig, namespace, identity string
	listen, webhook, names          string
	clientCA, clientNames           string
	dashboard                       string
	koordinator                     bool
	sweep, restore                  time.Duration
	ignore                          string
	health                          nodehealth.Settings
	evict                           evictbudget.Settings
	poolNamespaces, poolsAllow      string
	pools                           pools.Options
}

func (o *options) flags(f *flag.FlagSet) {
	host, _ := os.Hostname() // "": --identity is required then
	o.health, o.evict = nodehealth.DefaultSettings(), evictbudget.DefaultSettings()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; without it the pod's service account is used")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"namespace that the manager and the agents run in (default $POD_NAMESPACE)")
	f.StringVar(&o.identity, "identity", host, "name of this replica, unique among them")
	f.StringVar(&o.listen, "listen", ":9464", "address for /metrics, /healthz and /readyz; empty: none")
	f.StringVar(&o.webhook, "webhook", ":9443", "address of the webhook; empty: this replica has none")
	f.StringVar(&o.names, "webhook-names", "",
		"comma-separated DNS names or addresses under which API servers call the webhook, and browsers the dashboard")
	f.StringVar(&o.clientCA, "webhook-client-ca", "",
		"file with certificates of authorities, in PEM; the webhook then answers only clients with a certificate that one "+
			"of them signed, which API servers must be configured to present; empty: it answers everybody")
	f.StringVar(&o.clientNames, "webhook-client-names", "",
		"comma-separated common names or DNS names, of which the certificate of a client must have one; empty: any")
	f.StringVar(&o.dashboard, "dashboard", "", "address of the dashboard; empty: this replica has none")
	f.BoolVar(&o.koordinator, "koordinator-names", false,
		"new batch pods request Koordinator's resources, such as kubernetes.io/batch-cpu; the same for all agents and the "+
			"manager")
	f.DurationVar(&o.sweep, "sweep-period", 3*time.Minute,
		"time between two searches for batch pods that were admitted without the webhook")
	f.DurationVar(&o.restore, "restore-nodes", 0,
		"set every policy to mode Disabled, wait for so long until all nodes are restored, name those that are not, and "+
			"exit: what the chart does before it is uninstalled")
	f.StringVar(&o.ignore, "ignore-nodes", "",
		"comma-separated names of nodes for which --restore-nodes does not wait, such as dead ones; the log names those "+
			"that are not restored")
	f.StringVar(&o.poolNamespaces, "pools", "", "comma-separated namespaces that may have worker pools; empty: none")
	f.StringVar(&o.poolsAllow, "pools-allow", "",
		"what the pools of each of these namespaces may reach, as JSON: {\"NAMESPACE\": {\"addresses\": [HOST, HOST:PORT, "+
			"CIDR], \"excludeFiles\": [NAME]}}; a single namespace without a list reaches all but loopback, link-local and "+
			"cloud metadata addresses; of several, one without a list reaches nothing")
	f.StringVar(&o.pools.ClusterDomain, "cluster-domain", "cluster.local", "domain of the names of Services")
	f.StringVar(&o.pools.ExcludeDir, "exclude-dir", "",
		"directory with the exclude files of ResourceManagers, which worker pools name; empty: no pool decommissions "+
			"gracefully")
	f.StringVar(&o.pools.GuardImage, "guard-image", "",
		"image of waterline-guard for the workers of pools that name none; empty: these have no guard")
	f.DurationVar(&o.health.LostAfter, "lost-after", o.health.LostAfter,
		"time without a ready agent, or a renewed Lease of the kubelet, after which a node's offer is withdrawn")
	f.DurationVar(&o.health.FreshWithin, "fresh-within", o.health.FreshWithin,
		"age up to which the Lease of a kubelet is fresh")
	f.DurationVar(&o.health.BackAfter, "back-after", o.health.BackAfter,
		"time with a ready agent and a fresh Lease after which the withdrawal is lifted")
	f.Int64Var(&o.evict.PerOwner, "evictions-per-owner", o.evict.PerOwner,
		"batch pods of one workload that may be evicted within --eviction-period")
	f.Int64Var(&o.evict.All, "evictions", o.evict.All,
		"batch pods of the cluster that may be evicted within --eviction-period")
	f.DurationVar(&o.evict.Period, "eviction-period", o.evict.Period,
		"period of all eviction budgets, also those of nodes; after its start, the manager waits until the budgets "+
			"allow one eviction")
	f.DurationVar(&o.health.ForgetAfter, "forget-after", o.health.ForgetAfter,
		"time without an agent after which a node's report is deleted")
}

func main() {
	var o options
	flags := flag.NewFlagSet("waterline-manager", flag.ContinueOnError)
	o.flags(flags)
	os.Exit(program.Run(flags, version, func(ctx context.Context, log *slog.Logger) error { return run(ctx, &o, log) }))
}

// run wires the manager up and runs it until the context ends.
func run(ctx context.Context, o *options, log *slog.Logger) error {
	if o.namespace == "" || o.identity == "" {
		return errors.New("the namespace or the name of this replica is unknown; set --namespace or $POD_NAMESPACE, and " +
			"--identity")
	}
	config, err := program.RestConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	config.UserAgent = "waterline-manager/" + version
	config.QPS, config.Burst = 50, 100
	custom, err := kube.NewCustomClient(config)
	if err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("setting up the API client: %w", err)
	}
	election, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("setting up the client of the leader election: %w", err)
	}
	if o.restore > 0 {
		ctx, cancel := context.WithTimeout(ctx, o.restore)
		defer cancel()
		f := uninstall.Farewell{Core: client.CoreV1().RESTClient(), Custom: custom, Namespace: o.namespace, Log: log}
		if o.ignore != "" {
			f.Ignore = strings.Split(o.ignore, ",")
		}
		return f.Run(ctx)
	}
	if o.poolNamespaces != "" {
		o.pools.Namespaces = strings.Split(o.poolNamespaces, ",")
	}
	if o.pools.Reach, err = scopes(o.pools.Namespaces, o.poolsAllow); err != nil {
		return fmt.Errorf("--pools-allow: %w", err)
	}
	// At the end of a window, thousands of workers are marked at once.
	forPools, poolsCustom, err := ownClients(config, 200, 400, "worker pools")
	if err != nil {
		return err
	}
	o.pools.Core, o.pools.Policy = forPools.CoreV1().RESTClient(), forPools.PolicyV1().RESTClient()
	o.pools.Custom = poolsCustom
	m := manager.New(manager.Config{
		Client: client, Custom: custom, Election: election, Namespace: o.namespace, Identity: o.identity, Log: log,
		Koordinator: o.koordinator,
		NodeHealth:  o.health, Evict: o.evict, Sweep: o.sweep, Pools: o.pools,
	})
	if err := m.Alone(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var serving sync.WaitGroup
	ready := m.Ready
	keeping := certs.Options{
		Client: client, Namespace: o.namespace, Secret: manager.WebhookSecret, Names: strings.Split(o.names, ","), Log: log,
	}
	if o.webhook != "" {
		keeping.Webhooks = []string{manager.WebhookConfig}
	}
	keeper := certs.New(keeping)
	secure := &tls.Config{GetCertificate: keeper.GetCertificate, MinVersion: tls.VersionTLS12}
	if o.webhook != "" || o.dashboard != "" {
		serving.Go(func() { keeper.Run(ctx) })
	}
	if o.dashboard != "" {
		client, custom, err := ownClients(config, 20, 60, "the dashboard")
		if err != nil {
			return err
		}
		board := web.New(web.Options{
			Client: client, Custom: custom, PoolNamespaces: o.pools.Namespaces, Version: version, Log: log,
		})
		serving.Go(func() { board.Run(ctx) })
		if err := serve(ctx, o.dashboard, board.Handler(), secure, &serving, cancel); err != nil {
			return err
		}
	}
	if o.webhook != "" {
		mux := http.NewServeMux()
		mux.Handle(admit.Path, m.Webhook())
		strict, err := o.clients(secure)
		if err != nil {
			return err
		}
		if err := serve(ctx, o.webhook, mux, strict, &serving, cancel); err != nil {
			return err
		}
		ready = func() error {
			if !keeper.Ready() {
				return errors.New("the webhook has no certificate yet")
			}
			return m.Ready()
		}
	}
	public, err := program.Public(version, m.Collector(), m.Alive, ready)
	if err != nil {
		return err
	}
	if err := serve(ctx, o.listen, public, nil, &serving, cancel); err != nil {
		return err
	}
	err = m.Run(ctx)
	serving.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// clients returns the TLS configuration of the webhook.
func (o *options) clients(secure *tls.Config) (*tls.Config, error) {
	if o.clientCA == "" {
		if o.clientNames != "" {
			return nil, errors.New("--webhook-client-names needs --webhook-client-ca")
		}
		return secure, nil
	}
	authorities, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, fmt.Errorf("reading the authorities of the webhook's clients: %w", err)
	}
	var names []string
	if o.clientNames != "" {
		names = strings.Split(o.clientNames, ",")
	}
	strict, err := certs.RequireClients(secure, authorities, names)
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca=%s: %w", o.clientCA, err)
	}
	return strict, nil
}

// ownClients returns clients for a part of the manager whose requests must not delay the others, so they have a rate
// limit of their own.
func ownClients(config *rest.Config, qps float32, burst int, of string) (kubernetes.Interface, rest.Interface, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = qps, burst
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, nil, fmt.Errorf("setting up the API client of %s: %w", of, err)
	}
	custom, err := kube.NewCustomClient(own)
	return client, custom, err
}

// scopes reads what the pools of each namespace may reach.
func scopes(namespaces []string, text string) (map[string]reach.Scope, error) {
	entries := map[string]reach.Entry{}
	if text != "" {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&entries); err != nil {
			return nil, fmt.Errorf("reading %q: %w", text, err)
		}
	}
	return reach.Scopes(namespaces, entries)
}

// connections is the most connections to one address of the manager. API servers have one each, or few.
const connections = 256

// serve answers on an address until a while after the context ends, because API servers learn later than this process
// that they should ask another replica. When it cannot go on, it cancels the context with the cause.
func serve(ctx context.Context, address string, handler http.Handler, secure *tls.Config, running *sync.WaitGroup,
	cancel context.CancelCauseFunc) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := limited.Server(parting(ctx, handler), connections)
	server.TLSConfig = secure
	running.Go(func() {
		err := error(nil)
		if secure != nil {
			err = server.ServeTLS(listener, "", "")
		} else {
			err = server.Serve(listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serving on %s: %w", address, err))
		}
	})
	running.Go(func() {
		<-ctx.Done()
		if secure != nil {
			time.Sleep(shutdownTimeout)
		}
		ending, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close()
		}
	})
	return nil
}

// parting closes connections after the context ended, so that clients connect to another replica.
func parting(ctx context.Context, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}
