package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// agentPort is the port of the agent's --local address.
const agentPort = 9465

// kubeconfigFlag adds the flag that says where the cluster is.
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

// forwardToAgent opens a way to the agent on the node of a pod, through the API server, so that its RBAC decides who may
// see: it takes the verb create on pods/portforward in the agent's namespace. It returns a local address and what closes
// the way.
func forwardToAgent(ctx context.Context, config *rest.Config, namespace, name string) (string, func(), error) {
	client, err := kube.NewClient(config)
	if err != nil {
		return "", nil, err
	}
	var pod corev1.Pod
	if err := client.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(&pod); err != nil {
		return "", nil, fmt.Errorf("looking up the pod: %w", err)
	}
	if pod.Spec.NodeName == "" {
		return "", nil, fmt.Errorf("pod %s/%s is on no node yet", namespace, name)
	}
	var agents corev1.PodList
	err = client.Get().Namespace(v1alpha1.Namespace).Resource("pods").
		Param("labelSelector", "app.kubernetes.io/name=waterline-agent").
		Param("fieldSelector", "status.phase=Running,spec.nodeName="+pod.Spec.NodeName).
		Do(ctx).Into(&agents)
	if err != nil {
		return "", nil, fmt.Errorf("looking up the agent on node %s: %w", pod.Spec.NodeName, err)
	}
	if len(agents.Items) == 0 {
		return "", nil, fmt.Errorf("no agent runs on node %s, in namespace %s", pod.Spec.NodeName, v1alpha1.Namespace)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", nil, fmt.Errorf("reaching the agent: %w", err)
	}
	target := client.Post().Namespace(v1alpha1.Namespace).Resource("pods").Name(agents.Items[0].Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", agentPort)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, fmt.Errorf("reaching the agent: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return "", nil, fmt.Errorf("reaching the agent on node %s: %w", pod.Spec.NodeName, errors.Join(err, ctx.Err()))
	case <-ctx.Done():
		close(stop)
		return "", nil, fmt.Errorf("reaching the agent on node %s: %w", pod.Spec.NodeName, ctx.Err())
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		close(stop)
		return "", nil, fmt.Errorf("reaching the agent: %w", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() { close(stop) }, nil
}
