package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/observe/kube"
)

// dashboardPort is the port of the manager's --dashboard address, as the chart sets it.
const dashboardPort = 9444

func dashboardCommand() *cobra.Command {
	var cluster reach
	var address string
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Forward a local port to the manager's dashboard, and print its address",
		Long: `dashboard forwards a local port to the manager's dashboard, through the API server, until it is interrupted. This takes the rights to list pods and to create pods/portforward in Waterline's namespace.

Where the kubeconfig has a token, or a program that makes one, the page uses it: the address carries a code for this run
only, and the token does not reach the browser. Where it has a client certificate, the page asks for a token.`,
		Args: noArguments,
		RunE: cluster.connected(func(c *cobra.Command, a *apis) error { return runDashboard(c, a, address) }),
	}
	cluster.flags(c)
	c.Flags().StringVar(&address, "address", "127.0.0.1:8765", "local address on the loopback device; port 0: any")
	return c
}

func runDashboard(c *cobra.Command, a *apis, address string) error {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return usageError(fmt.Errorf("--address %q is not a loopback address with a port, such as 127.0.0.1:8765: whoever "+
			"reaches it could see what you may", address))
	}
	pod, err := servingManager(c.Context(), a)
	if err != nil {
		return err
	}
	remote, end, err := forwardToPod(c.Context(), a, pod, dashboardPort)
	if err != nil {
		return fmt.Errorf("reaching manager %s: %w", pod, err)
	}
	defer end()
	token, err := tokenOf(a.config)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w; choose another port by --address", err)
	}
	b := &board{host: listener.Addr().String(), remote: remote, token: token}
	at := "http://" + b.host + "/"
	if token != nil {
		b.code = rand.Text()
		at += "#token=" + b.code
	}
	fmt.Fprintf(c.OutOrStdout(), "The dashboard is at %s\n", at)
	if token == nil {
		fmt.Fprintln(c.OutOrStdout(), "Your kubeconfig has no token. Paste one there, for example that of a ServiceAccount "+
			"that may list nodereports:\n  kubectl create token NAME -n NAMESPACE")
	}
	server := &http.Server{Handler: b.handler(), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(c.Context(), func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", b.host, err)
	}
	return nil
}

// servingManager returns a ready manager whose pod has the dashboard.
func servingManager(ctx context.Context, a *apis) (string, error) {
	var list corev1.PodList
	err := a.core.Get().Namespace(a.home(ctx)).Resource("pods").
		Param("labelSelector", appLabel+"="+managerName).Do(ctx).Into(&list)
	if err != nil {
		return "", fmt.Errorf("looking up the manager: %w", err)
	}
	ready := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !kube.Ready(&p) })
	for _, p := range ready {
		for _, container := range p.Spec.Containers {
			for _, port := range container.Ports {
				if port.ContainerPort == dashboardPort {
					return p.Name, nil
				}
			}
		}
	}
	if len(ready) > 0 {
		return "", errors.New("the manager has no dashboard: install the chart with --set dashboard.enabled=true")
	}
	return "", fmt.Errorf("no manager is ready in namespace %s", a.home(ctx))
}

// tokenOf returns what gets the present header Authorization of a configuration, which renews tokens; nil if it has
// none.
func tokenOf(config *rest.Config) (func() (string, error), error) {
	if config.Username != "" {
		return nil, nil // not a bearer token
	}
	bare := rest.AnonymousClientConfig(config)
	bare.BearerToken, bare.BearerTokenFile = config.BearerToken, config.BearerTokenFile
	bare.ExecProvider, bare.AuthProvider = config.ExecProvider, config.AuthProvider
	wrapped, err := rest.HTTPWrappersForConfig(bare, recorder{})
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig's credentials: %w", err)
	}
	get := func() (string, error) {
		r, err := http.NewRequest(http.MethodGet, "http://none/", http.NoBody)
		if err != nil {
			return "", err
		}
		response, err := wrapped.RoundTrip(r)
		if err != nil {
			return "", fmt.Errorf("getting the kubeconfig's token: %w", err)
		}
		defer response.Body.Close()
		return response.Header.Get("Authorization"), nil
	}
	if header, err := get(); err != nil || header == "" {
		return nil, err
	}
	return get, nil
}

// recorder answers each request with its own header Authorization, and sends nothing.
type recorder struct{}

// RoundTrip implements [http.RoundTripper].
func (recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Body: http.NoBody,
		Header: http.Header{"Authorization": r.Header.Values("Authorization")}, Request: r,
	}, nil
}

// board serves the manager's dashboard on a local address.
type board struct {
	host   string // local address
	remote string // where the way to the manager begins
	code   string // by which the page stands for the user's token; "": it does not
	token  func() (string, error)
}

// handler passes requests on. A request under another name comes from a page that made its name lead here, and is
// refused.
func (b *board) handler() http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: b.remote}) },
		Transport: &http.Transport{
			// The way itself is authentic: the API server authenticates the kubelet, which leads to the pod.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "The manager does not answer: "+err.Error()+". Start waterline dashboard again.",
				http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != b.host {
			http.Error(w, "This address is "+b.host+" only.", http.StatusMisdirectedRequest)
			return
		}
		if b.code != "" && r.Header.Get("Authorization") == "Bearer "+b.code {
			header, err := b.token()
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			r.Header.Set("Authorization", header)
		}
		proxy.ServeHTTP(w, r)
	})
}
