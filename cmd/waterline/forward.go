package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// The ports of the agent's addresses --local and --listen.
const (
	agentPort   = 9465
	metricsPort = 9464
)

// agentVariable names the variable that has, in the agent's pod, the address of this agent. The chart sets it.
const agentVariable = "WATERLINE_AGENT"

const agentUsage = "address of the agent's --local (default $" + agentVariable + ", which the agent's pod has; " +
	"else the agent is reached through the cluster)"

// ownAgent returns the address of an agent to ask without a cluster: the one given, else that of the agent in whose pod
// the command runs, unless a node is named.
func ownAgent(address string, named bool) string {
	if address == "" && !named {
		return os.Getenv(agentVariable)
	}
	return address
}

// How the chart labels pods of Waterline.
const (
	appLabel    = "app.kubernetes.io/name"
	agentName   = "waterline-agent"
	managerName = "waterline-manager"
)

// notServed is the standard library's answer for an unknown path. An agent that does not know a pod has a text of its
// own.
const notServed = "404 page not found"

// agents returns the agents that run: all, or the one on a node if it is not "".
func agents(ctx context.Context, a *apis, node string) ([]corev1.Pod, error) {
	selector := fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning))
	if node != "" {
		selector = fields.AndSelectors(selector, fields.OneTermEqualSelector("spec.nodeName", node))
	}
	var list corev1.PodList
	err := a.core.Get().Namespace(a.home(ctx)).Resource("pods").
		Param("labelSelector", appLabel+"="+agentName).
		Param("fieldSelector", selector.String()).
		Do(ctx).Into(&list)
	return list.Items, err
}

// agent returns the address of the agent to ask, its node where that is known, and what closes the way there. The
// address is the one given, or that of the agent in whose pod the command runs, or leads through the cluster to the
// agent on a node: without a name that of a pod or, without one too, that of the only agent.
func (r *reach) agent(ctx context.Context, address, node, namespace, pod string) (
	at, on string, closed func(), err error,
) {
	if at = ownAgent(address, node != ""); at != "" {
		return at, node, func() {}, nil
	}
	a, err := r.connect()
	if err != nil {
		return "", "", nil, fmt.Errorf("%w; --agent asks an agent without a cluster", err)
	}
	if node == "" {
		if node, err = findNode(ctx, a, namespace, pod); err != nil {
			return "", "", nil, err
		}
	}
	at, closed, err = forwardToNode(ctx, a, node, agentPort)
	return at, node, closed, err
}

// forwardToNode opens a way to a port of the agent on a node, through the API server, so that its RBAC decides who may
// see: it takes the verb create on pods/portforward in the agent's namespace. It returns a local address and what
// closes the way.
func forwardToNode(ctx context.Context, a *apis, node string, port int) (string, func(), error) {
	found, err := agents(ctx, a, node)
	if err != nil {
		return "", nil, fmt.Errorf("looking up the agent on node %s: %w", node, err)
	}
	if len(found) == 0 {
		return "", nil, fmt.Errorf("no agent runs on node %s, in namespace %s", node, a.home(ctx))
	}
	address, end, err := forwardToPod(ctx, a, found[0].Name, port)
	if err != nil {
		return "", nil, fmt.Errorf("reaching the agent on node %s: %w", node, err)
	}
	return address, end, nil
}

// forwardToPod opens a way to a port of a pod in Waterline's namespace. It returns a local address and what closes the
// way.
func forwardToPod(ctx context.Context, a *apis, pod string, port int) (string, func(), error) {
	transport, upgrader, err := spdy.RoundTripperFor(a.config)
	if err != nil {
		return "", nil, fmt.Errorf("setting up the connection: %w", err)
	}
	target := a.core.Post().Namespace(a.home(ctx)).Resource("pods").Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)},
		stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, fmt.Errorf("setting up the connection: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return "", nil, errors.Join(err, ctx.Err())
	case <-ctx.Done():
		close(stop)
		return "", nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		close(stop)
		return "", nil, fmt.Errorf("learning the local port: %w", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() { close(stop) }, nil
}

// openAgent queries an agent at a path of its local address, and returns the body of its answer.
func openAgent(ctx context.Context, address, path string, query url.Values) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking the agent: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the agent: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	text := strings.TrimSpace(string(body))
	switch {
	case response.StatusCode == http.StatusNotFound && text == notServed:
		return nil, fmt.Errorf("the agent is too old for this command, it does not serve %s: bring it to the version of "+
			"this command, %s", path, version)
	case response.StatusCode == http.StatusNotFound:
		return nil, notFoundError{text}
	}
	return nil, errors.New(cmp.Or(text, "the agent answers "+response.Status))
}

// notFoundError is the answer of an agent whose node does not have what is asked for.
type notFoundError struct{ text string }

// Error returns the agent's words.
func (e notFoundError) Error() string { return e.text }

// getFromAgent decodes the answer of an agent.
func getFromAgent(ctx context.Context, address, path string, query url.Values, into any) error {
	body, err := openAgent(ctx, address, path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("reading the agent's answer: %w", err)
	}
	return nil
}
