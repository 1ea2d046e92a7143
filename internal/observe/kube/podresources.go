package kube

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waterline-io/waterline/internal/model"
)

// PodResources asks a kubelet for its [model.CPUPool] through its PodResources API (v1, gRPC on a socket). The package
// comment says why it does so by itself.
type PodResources struct {
	client *http.Client
}

const (
	podResourcesTimeout = 2 * time.Second // for both calls together
	podResourcesMost    = 16 << 20        // bytes in an answer: the limit of the kubelet's own client
)

// NewPodResources returns a client for a kubelet's socket, usually /var/lib/kubelet/pod-resources/kubelet.sock.
func NewPodResources(socket string) *PodResources {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &PodResources{client: &http.Client{
		Timeout: podResourcesTimeout,
		Transport: &http.Transport{
			Protocols:          &protocols,
			DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", socket)
			},
		},
	}}
}

// CPUPool asks the kubelet. A kubelet that has just started says that it hands out no CPUs at all until its CPU manager
// works, which is an error here.
func (p *PodResources) CPUPool(ctx context.Context) (model.CPUPool, error) {
	ctx, cancel := context.WithTimeout(ctx, podResourcesTimeout)
	defer cancel()
	// A connection costs two goroutines and their buffers here and in the kubelet, and the next question is seconds away.
	defer p.client.CloseIdleConnections()
	var pool model.CPUPool
	answer, err := p.call(ctx, "GetAllocatableResources")
	if err == nil {
		pool.Allocatable, err = parseAllocatable(answer)
	}
	if err != nil {
		return model.CPUPool{}, fmt.Errorf("asking the kubelet which CPUs it hands out: %w", err)
	}
	if pool.Allocatable.Empty() {
		return model.CPUPool{},
			errors.New("asking the kubelet which CPUs it hands out: none; its CPU manager has not started yet, or all CPUs " +
				"are reserved")
	}
	if answer, err = p.call(ctx, "List"); err == nil {
		pool.Taken, pool.Pods, err = parsePodResources(answer)
	}
	if err != nil {
		return model.CPUPool{}, fmt.Errorf("asking the kubelet which CPUs its containers have: %w", err)
	}
	return pool, nil
}

// call makes one unary call whose request has no fields and returns the message that answers it.
func (p *PodResources) call(ctx context.Context, method string) ([]byte, error) {
	// One frame: not compressed, zero bytes of message.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kubelet/v1.PodResourcesLister/"+method,
		bytes.NewReader(make([]byte, 5)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, podResourcesMost))
	if err != nil {
		return nil, err
	}
	// The trailers are there once the body has been read to its end; an answer without a body has none.
	outcome := response.Trailer
	if outcome.Get("Grpc-Status") == "" {
		outcome = response.Header
	}
	if status := outcome.Get("Grpc-Status"); status != "0" || response.StatusCode != http.StatusOK {
		message, err := url.PathUnescape(outcome.Get("Grpc-Message"))
		if err != nil {
			message = outcome.Get("Grpc-Message")
		}
		return nil, fmt.Errorf("%s: it answers %s, gRPC status %q: %.200q", method, response.Status, status, message)
	}
	if len(body) < 5 || body[0] != 0 || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5) {
		return nil, fmt.Errorf("%s: the answer of %d bytes is not one plain message", method, len(body))
	}
	return body[5:], nil
}

// The fields that are read, by their numbers in k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. Numbers of a
// released message never change their meaning.
const (
	allocatableCPUs = 2 // AllocatableResourcesResponse.cpu_ids

	listPods      = 1 // ListPodResourcesResponse.pod_resources
	podName       = 1 // PodResources.name
	podNamespace  = 2 // PodResources.namespace
	podContainers = 3 // PodResources.containers
	containerCPUs = 3 // ContainerResources.cpu_ids
)

// parseAllocatable reads an AllocatableResourcesResponse.
func parseAllocatable(message []byte) (model.CPUSet, error) {
	var cpus model.CPUSet
	if err := eachField(message, cpusIn(allocatableCPUs, &cpus)); err != nil {
		return model.CPUSet{}, err
	}
	return cpus, nil
}

// parsePodResources reads a ListPodResourcesResponse.
func parsePodResources(message []byte) (taken model.CPUSet, pods map[string]bool, err error) {
	pods = map[string]bool{}
	err = eachField(message, func(number protowire.Number, pod []byte) error {
		if number != listPods {
			return nil
		}
		var name, namespace string
		err := eachField(pod, func(number protowire.Number, value []byte) error {
			switch number {
			case podName:
				name = string(value)
			case podNamespace:
				namespace = string(value)
			case podContainers:
				return eachField(value, cpusIn(containerCPUs, &taken))
			}
			return nil
		})
		pods[namespace+"/"+name] = true
		return err
	})
	if err != nil {
		return model.CPUSet{}, nil, err
	}
	return taken, pods, nil
}

// cpusIn returns a function for [eachField] that adds the CPUs which stand in a field, a repeated int64. Packed or one
// by one, its values are varints behind each other.
func cpusIn(field protowire.Number, cpus *model.CPUSet) func(protowire.Number, []byte) error {
	return func(number protowire.Number, value []byte) error {
		for number == field && len(value) > 0 {
			id, n := protowire.ConsumeVarint(value)
			if n < 0 {
				return fmt.Errorf("reading the CPUs of the answer: %w", protowire.ParseError(n))
			}
			if id >= model.MaxCPUs {
				return fmt.Errorf("reading the CPUs of the answer: %w: %d is not from 0 to %d", model.ErrCPUList, int64(id),
					model.MaxCPUs-1)
			}
			cpus.Add(int(id))
			value = value[n:]
		}
		return nil
	}
}

// eachField calls f for each field of a message that is an integer, or has a length, which is not part of the value.
func eachField(message []byte, f func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			return fmt.Errorf("reading the answer: %w", protowire.ParseError(n))
		}
		_, _, tag := protowire.ConsumeTag(message)
		value := message[tag:n]
		message = message[n:]
		switch kind {
		case protowire.VarintType:
		case protowire.BytesType:
			value, _ = protowire.ConsumeBytes(value)
		default:
			continue
		}
		if err := f(number, value); err != nil {
			return err
		}
	}
	return nil
}
