// Command waterline-agent keeps the pods of one node as their annotations and the node's policy say. It runs as a
// DaemonSet, or without a cluster on a directory of pod manifests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/rest"

	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/agent/kubelet"
	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/nri"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/program"
	"github.com/waterline-io/waterline/internal/program/limited"
)

// version is set when a release is built.
var version = "dev"

type options struct {
	nodeName, podUID, kubeconfig string
	manifests                    string
	allocatable                  int64
	policy                       string
	cgroupRoot, kubepods, runDir string
	sys, proc                    string
	stateDir                     string
	syncPeriod                   time.Duration
	journalBytes                 int64
	nri                          string
	listen, local, metrics       string
	kubeletURL, podResources     string
	kubeletInsecure, koordinator bool
}

func (o *options) flags(f *flag.FlagSet) {
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node in the cluster (default $NODE_NAME)")
	f.StringVar(&o.podUID, "pod-uid", os.Getenv("POD_UID"), "UID of the agent's own pod (default $POD_UID)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; without it the pod's service account is used")
	f.StringVar(&o.manifests, "pods", "", "directory of Pod manifests to use instead of a cluster")
	f.Int64Var(&o.allocatable, "allocatable-millicores", int64(runtime.NumCPU())*1000,
		"with --pods: CPU that pods may request on this node")
	f.StringVar(&o.policy, "config", "",
		"file with the ColocationPolicy that governs this node (default: the policies of the cluster; with --pods: none)")
	f.StringVar(&o.cgroupRoot, "cgroup-root", host.DefaultRoot, "where the host's cgroup file system is mounted")
	f.StringVar(&o.sys, "sys-root", host.DefaultSys, "where sysfs is mounted, for the machine's topology")
	f.StringVar(&o.kubepods, "kubepods", "", "directory of all pods below the CPU hierarchy (default: find it)")
	f.StringVar(&o.runDir, "run-dir", "/run/waterline",
		"directory for the undo record and the journal, on a file system that a reboot clears")
	f.StringVar(&o.proc, "proc-root", host.DefaultProc, "where procfs is mounted, for the machine's load")
	f.StringVar(&o.stateDir, "state-dir", "",
		"directory for the learned usage of online pods, which should outlive a reboot; empty: none")
	f.DurationVar(&o.syncPeriod, "sync-period", 10*time.Second, "time between two complete comparisons with the kernel")
	f.Int64Var(&o.journalBytes, "journal-bytes", 8<<20, "size limit of the journal, in bytes")
	f.StringVar(&o.nri, "nri-socket", "",
		"socket of the container runtime's NRI, usually "+nri.DefaultSocket+": new containers get their CPUs and limits "+
			"before they run; empty: after they start")
	f.StringVar(&o.listen, "listen", ":9464", "address for /metrics, /healthz and /readyz; empty: none")
	f.StringVar(&o.metrics, "metrics", "full",
		"which metrics to serve: full, or lean, which are those that rules, alerts and dashboard need")
	f.StringVar(&o.local, "local", "127.0.0.1:9465",
		"address for waterline explain, which only this machine should reach; empty: none")
	f.StringVar(&o.kubeletURL, "kubelet", kubeletURL(os.Getenv("HOST_IP")),
		"URL of the kubelet's configuration (default made from $HOST_IP); empty: never asked")
	f.StringVar(&o.podResources, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock",
		"socket on which the kubelet tells which CPUs it has handed out, asked if its CPU manager policy is static; "+
			"empty: never asked")
	f.BoolVar(&o.kubeletInsecure, "kubelet-insecure-tls", false,
		"do not verify the kubelet's certificate, which the cluster's CA must otherwise have signed")
	f.BoolVar(&o.koordinator, "koordinator-names", false,
		"sell under Koordinator's resource names, such as kubernetes.io/batch-cpu; the same for all agents and the manager")
}

func kubeletURL(hostIP string) string {
	if hostIP == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(hostIP, "10250") + "/configz"
}

func main() {
	var o options
	flags := flag.NewFlagSet("waterline-agent", flag.ContinueOnError)
	o.flags(flags)
	logrus.SetOutput(io.Discard) // of the NRI's transport; the agent reports what matters of it itself
	os.Exit(program.Run(flags, version, func(ctx context.Context, log *slog.Logger) error { return run(ctx, &o, log) }))
}

// run wires the agent up and runs it until the context ends.
func run(ctx context.Context, o *options, log *slog.Logger) error {
	cfg := agent.Config{
		CgroupRoot: o.cgroupRoot, Kubepods: o.kubepods, SelfUID: o.podUID, NodeName: o.nodeName, RunDir: o.runDir,
		Sys: o.sys, Proc: o.proc, StateDir: o.stateDir, SyncPeriod: o.syncPeriod, JournalBytes: o.journalBytes, Log: log,
		LeanMetrics: o.metrics == "lean", Koordinator: o.koordinator,
	}
	if !cfg.LeanMetrics && o.metrics != "full" {
		return fmt.Errorf("--metrics is %q; use lean or full", o.metrics)
	}
	var poller kubelet.Poller
	namespaces := false
	if o.policy != "" {
		cfg.Policies = policySource(o.policy)
		first, err := cfg.Policies()
		if err != nil {
			return err
		}
		namespaces = first[0].Policy.SelectsNamespaces()
	}
	if o.manifests != "" {
		cfg.Pods = kube.NewManifests(o.manifests, time.Second, o.podUID, o.allocatable, log)
		// Without a cluster there is no kubelet: its defaults count.
		poller.Settings = func(context.Context) (model.Kubelet, error) { return kube.DefaultKubelet(), nil }
	} else if err := connect(o, &cfg, &poller, namespaces); err != nil {
		return err
	}
	plugin := runtimePlugin{socket: o.nri, lean: cfg.LeanMetrics}
	if o.nri != "" {
		cfg.Runtime = plugin.connect
	}
	cfg.Kubelet = func(log *faillog.Log) agent.Kubelet {
		poller.Pods, poller.Log = cfg.Pods.Snapshot, log
		return kubelet.New(poller)
	}
	a := agent.New(cfg)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	public, err := program.Public(version, collectors{a.Collector(), &plugin}, a.Healthy, a.Ready)
	if err != nil {
		return err
	}
	if err := listen(ctx, o.listen, public, cancel); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if err := listen(ctx, o.local, serve.Handler(a.View, o.runDir), cancel); err != nil {
		return fmt.Errorf("--local: %w", err)
	}
	go func() {
		if err := trim(ctx, a.Ready); err != nil {
			log.Warn("the agent keeps more memory than it needs", "err", err)
		}
	}()
	if err := a.Run(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// connect points the agent at its cluster.
func connect(o *options, cfg *agent.Config, poller *kubelet.Poller, namespaces bool) error {
	if o.nodeName == "" {
		return errors.New("the name of this node is unknown; set --node-name or $NODE_NAME, or use --pods without a cluster")
	}
	config, err := program.RestConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster; use --pods without one: %w", err)
	}
	client, err := kube.NewClient(config)
	if err != nil {
		return err
	}
	custom, err := kube.NewCustomClient(config)
	if err != nil {
		return err
	}
	cfg.Pods = kube.NewCluster(client, custom, o.nodeName, o.podUID, namespaces, cfg.Log)
	cfg.API.Publish = actkube.NewPublisher(client, o.nodeName).Write
	cfg.API.Report = actkube.NewReports(custom, o.nodeName).Write
	cfg.API.Notify = actkube.NewEvents(client, o.nodeName).Send
	cfg.API.SetCondition = actkube.NewConditions(client).Set
	if o.kubeletURL == "" {
		return nil
	}
	kubeletConfig := rest.CopyConfig(config)
	if o.kubeletInsecure {
		kubeletConfig.Insecure, kubeletConfig.CAFile, kubeletConfig.CAData = true, "", nil
	}
	web, err := rest.HTTPClientFor(kubeletConfig)
	if err != nil {
		return fmt.Errorf("setting up the client for the kubelet: %w", err)
	}
	web.Timeout = 10 * time.Second
	poller.Settings = func(ctx context.Context) (model.Kubelet, error) {
		return kube.ReadKubelet(ctx, web, o.kubeletURL)
	}
	if o.podResources != "" {
		poller.Pool = kube.NewPodResources(o.podResources).CPUPool
	}
	return nil
}

// policySource returns a function that reads the policy file, which it does again only when it has changed. The file is
// of this node alone, so it governs it whatever its selector and its roll-out are.
func policySource(path string) func() ([]model.ClusterPolicy, error) {
	var file []model.ClusterPolicy
	var modified time.Time
	return func() ([]model.ClusterPolicy, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("reading the policy: %w", err)
		}
		if info.ModTime().Equal(modified) {
			return file, nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the policy: %w", err)
		}
		p, err := kube.ParsePolicy(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		p.Nodes, p.Rollout = nil, model.DefaultRollout
		file, modified = []model.ClusterPolicy{p}, info.ModTime()
		return file, nil
	}
}

// connections is the most connections to one address of the agent: those of probes, of some scrapers and of commands.
const connections = 64

// listen answers on an address until the context ends. When it cannot go on, it cancels the context with the cause.
func listen(ctx context.Context, address string, handler http.Handler, cancel context.CancelCauseFunc) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := limited.Server(handler, connections)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serving on %s: %w", address, err))
		}
	}()
	return nil
}
