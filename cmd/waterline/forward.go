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
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// agentPort is the port of the agent's --local address.
const agentPort = 9465

// notServed is the standard library's answer for an unknown path. An agent that does not know a pod has a text of its
// own.
const notServed = "404 page not found"

// kubeconfigFlag adds the flag for the cluster's kubeconfig.
func kubeconfigFlag(c *cobra.Command, kubeconfig *string) {
	c.Flags().StringVar(kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, then ~/.kube/config)")
}

// findCluster finds the cluster as kubectl does.
func findCluster(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return config, nil
}

// nodeOf returns the node that a pod is on.
func nodeOf(ctx context.Context, client rest.Interface, namespace, name string) (string, error) {
	var pod corev1.Pod
	if err := client.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(&pod); err != nil {
		return "", fmt.Errorf("looking up the pod: %w", err)
	}
	if pod.Spec.NodeName == "" {
		return "", fmt.Errorf("pod %s/%s is on no node yet", namespace, name)
	}
	return pod.Spec.NodeName, nil
}

// agents returns the agents that run: all, or the one on a node if it is not "".
func agents(ctx context.Context, client rest.Interface, node string) ([]corev1.Pod, error) {
	selector := fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning))
	if node != "" {
		selector = fields.AndSelectors(selector, fields.OneTermEqualSelector("spec.nodeName", node))
	}
	var list corev1.PodList
	err := client.Get().Namespace(v1alpha1.Namespace).Resource("pods").
		Param("labelSelector", "app.kubernetes.io/name=waterline-agent").
		Param("fieldSelector", selector.String()).
		Do(ctx).Into(&list)
	return list.Items, err
}

// forwardToNode opens a way to the agent on a node, through the API server, so that its RBAC decides who may see: it
// takes the verb create on pods/portforward in the agent's namespace. It returns a local address and what closes the
// way.
func forwardToNode(ctx context.Context, config *rest.Config, node string) (string, func(), error) {
	client, err := kube.NewClient(config)
	if err != nil {
		return "", nil, err
	}
	found, err := agents(ctx, client, node)
	if err != nil {
		return "", nil, fmt.Errorf("looking up the agent on node %s: %w", node, err)
	}
	if len(found) == 0 {
		return "", nil, fmt.Errorf("no agent runs on node %s, in namespace %s", node, v1alpha1.Namespace)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", nil, fmt.Errorf("reaching the agent: %w", err)
	}
	target := client.Post().Namespace(v1alpha1.Namespace).Resource("pods").Name(found[0].Name).
		SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", agentPort)},
		stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, fmt.Errorf("reaching the agent: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return "", nil, fmt.Errorf("reaching the agent on node %s: %w", node, errors.Join(err, ctx.Err()))
	case <-ctx.Done():
		close(stop)
		return "", nil, fmt.Errorf("reaching the agent on node %s: %w", node, ctx.Err())
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		close(stop)
		return "", nil, fmt.Errorf("reaching the agent: %w", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() { close(stop) }, nil
}

// getFromAgent queries an agent at a path of its local address.
func getFromAgent(ctx context.Context, address, path string, query url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return fmt.Errorf("asking the agent: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the agent: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		text := strings.TrimSpace(string(body))
		if response.StatusCode == http.StatusNotFound && text == notServed {
			return fmt.Errorf("the agent is too old for this command, it does not serve %s: bring it to the version of this "+
				"command, %s", path, version)
		}
		return errors.New(cmp.Or(text, "the agent answers "+response.Status))
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the agent's answer: %w", err)
	}
	return nil
}
