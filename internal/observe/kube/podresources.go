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

// PodResources reads the [model.CPUPool] of a kubelet through its PodResources API (v1, gRPC on a socket). The package
// comment says why it has its own gRPC client.
type PodResources struct {
	client *http.Client
	limit  time.Duration // for both calls together
}

const (
	podResourcesTimeout = 2 * time.Second // for both calls together
	podResourcesMost    = 16 << 20        // bytes in a response: the limit of the kubelet's own client
)

// NewPodResources returns a client for a kubelet's socket, usually /var/lib/kubelet/pod-resources/kubelet.sock.
func NewPodResources(socket string) *PodResources {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &PodResources{limit: podResourcesTimeout, client: &http.Client{
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

// CPUPool calls the kubelet. A kubelet that has just started reports no allocatable CPUs until its CPU manager works;
// that is an error here.
func (p *PodResources) CPUPool(ctx context.Context) (model.CPUPool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	// A connection costs two goroutines and their buffers here and in the kubelet, and the next call is seconds away.
	defer p.client.CloseIdleConnections()
	var pool model.CPUPool
	answer, err := p.call(ctx, "GetAllocatableResources")
	if err == nil {
		pool.Allocatable, err = parseAllocatable(answer)
	}
	if err != nil {
		return model.CPUPool{}, fmt.Errorf("reading the kubelet's allocatable CPUs: %w", err)
	}
	if pool.Allocatable.Empty() {
		return model.CPUPool{}, errors.New("reading the kubelet's allocatable CPUs: none; " +
			"its CPU manager has not started yet, or all CPUs are reserved")
	}
	if answer, err = p.call(ctx, "List"); err == nil {
		pool.Taken, pool.Pods, err = parsePodResources(answer)
	}
	if err != nil {
		return model.CPUPool{}, fmt.Errorf("reading the CPUs of the kubelet's containers: %w", err)
	}
	return pool, nil
}

// call makes one unary call whose request has no fields, and returns the message of the response.
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
	// The trailers are there once the body was read to its end; a response without a body has none.
	outcome := response.Trailer
	if outcome.Get("Grpc-Status") == "" {
		outcome = response.Header
	}
	if status := outcome.Get("Grpc-Status"); status != "0" || response.StatusCode != http.StatusOK {
		message, err := url.PathUnescape(outcome.Get("Grpc-Message"))
		if err != nil {
			message = outcome.Get("Grpc-Message")
		}
		return nil, fmt.Errorf("%s: response %s, gRPC status %q: %.200q", method, response.Status, status, message)
	}
	if len(body) < 5 || body[0] != 0 || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5) {
		return nil, fmt.Errorf("%s: the response of %d bytes is not one plain message", method, len(body))
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

// cpusIn returns a function for [eachField] that adds the CPUs of a field, a repeated int64. Packed or not, its values
// are varints one after another.
func cpusIn(field protowire.Number, cpus *model.CPUSet) func(protowire.Number, []byte) error {
	return func(number protowire.Number, value []byte) error {
		for number == field && len(value) > 0 {
			id, n := protowire.ConsumeVarint(value)
			if n < 0 {
				return fmt.Errorf("reading the CPUs of the response: %w", protowire.ParseError(n))
			}
			if id >= model.MaxCPUs {
				return fmt.Errorf("reading the CPUs of the response: %w: %d is not from 0 to %d",
					model.ErrCPUList, int64(id), model.MaxCPUs-1)
			}
			cpus.Add(int(id))
			value = value[n:]
		}
		return nil
	}
}

// eachField calls f for each field of a message that is an integer or has a length. The length is not part of the
// value.
func eachField(message []byte, f func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			return fmt.Errorf("reading the response: %w", protowire.ParseError(n))
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
