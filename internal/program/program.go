// Package program holds the parts that all programs in a cluster share: start and end of the process, the connection to
// the API server, and the endpoints for metrics and probes.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// Run parses the flags of the program, to which it adds -version, and calls work. The context of work ends with
// SIGTERM or SIGINT. The log, and that of the libraries, goes to standard error. Run returns the exit code: 0,
// 1 if work failed, 2 if the command line was invalid.
func Run(flags *flag.FlagSet, version string, work func(ctx context.Context, log *slog.Logger) error) int {
	printVersion := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case *printVersion:
		fmt.Println(version)
		return 0
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetSlogLogger(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if flags.NArg() > 0 {
		log.Error(flags.Name()+" takes no arguments", "argument", flags.Arg(0))
		return 2
	}
	if err := work(ctx, log); err != nil {
		log.Error("stopping", "err", err.Error())
		return 1
	}
	return 0
}

// RestConfig returns the configuration for the API server: from a kubeconfig file or, if the path is empty,
// from the service account of the pod.
func RestConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	return rest.InClusterConfig()
}

// scrapesAtOnce is the number of scrapes that are computed at once.
const scrapesAtOnce = 2

// Public returns the handler of the public endpoints. It serves /metrics, with the metrics of the collector and
// the version, and the probes /healthz and /readyz. A probe fails with the error of its check.
func Public(version string, metrics prometheus.Collector, alive, ready func() error) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: v1alpha1.MetricBuildInfo, Help: "The running version.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	if err := errors.Join(registry.Register(metrics), registry.Register(build)); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", atOnce(scrapesAtOnce, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	mux.Handle("GET /healthz", probe(alive))
	mux.Handle("GET /readyz", probe(ready))
	return mux, nil
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
