package kube

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waterline-io/waterline/internal/model"
)

// kubeletSocket serves each method of a kubelet's socket with a handler, and with the headers of gRPC.
func kubeletSocket(t *testing.T, methods map[string]http.HandlerFunc) *PodResources {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		frame, err := io.ReadAll(r.Body)
		if err != nil || string(frame) != "\x00\x00\x00\x00\x00" || r.Method != http.MethodPost || r.ProtoMajor != 2 ||
			r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("TE") != "trailers" {
			t.Errorf("asked with %s %s %s %v %q", r.Proto, r.Method, r.URL, r.Header, frame)
		}
		w.Header().Set("Content-Type", "application/grpc")
		method := methods[strings.TrimPrefix(r.URL.Path, "/v1.PodResourcesLister/")]
		if method == nil {
			t.Errorf("asked for %s", r.URL.Path)
			return
		}
		method(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	p := NewPodResources(path)
	p.limit = 5 * time.Minute // so long that a slow machine does not reach it
	return p
}

// message returns a handler that responds with a message.
func message(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...))
		w.Header().Set("Grpc-Status", "0")
	}
}

// packed encodes a repeated int64 as the kubelet does.
func packed(b []byte, field protowire.Number, ids ...uint64) []byte {
	var values []byte
	for _, id := range ids {
		values = protowire.AppendVarint(values, id)
	}
	return nested(b, field, values)
}

func nested(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

// podAnswer encodes a PodResources whose containers have these CPUs, with the kubelet's fields for memory and devices.
func podAnswer(namespace, name string, containers ...[]uint64) []byte {
	b := nested(nested(nil, podName, []byte(name)), podNamespace, []byte(namespace))
	for _, ids := range containers {
		c := nested(nil, 1, []byte("c"))
		c = nested(c, 2, nested(nil, 1, []byte("vendor.example/gpu")))
		if len(ids) > 0 {
			c = packed(c, containerCPUs, ids...)
		}
		memory := protowire.AppendVarint(protowire.AppendTag(nested(nil, 1, []byte("memory")), 2, protowire.VarintType),
			1<<30)
		b = nested(b, podContainers, nested(c, 4, memory))
	}
	return nested(nil, listPods, b)
}

func TestPodResources(t *testing.T) {
	list := append(podAnswer("default", "db", []uint64{1, 130}, nil), podAnswer("kube-system", "proxy", nil)...)
	list = append(list, podAnswer("default", "web", []uint64{3})...)
	allocatable := packed(nested(nil, 1, nested(nil, 1, []byte("vendor.example/gpu"))), allocatableCPUs, 1, 2, 3, 130)
	pool, err := kubeletSocket(t, map[string]http.HandlerFunc{
		"GetAllocatableResources": message(allocatable), "List": message(list),
	}).CPUPool(t.Context())
	pods := map[string]bool{"default/db": true, "default/web": true, "kube-system/proxy": true}
	if err != nil || pool.Allocatable != model.CPUs(1, 2, 3, 130) || pool.Taken != model.CPUs(1, 3, 130) ||
		!maps.Equal(pool.Pods, pods) {
		t.Errorf("got %s and %s of %v, %v", pool.Allocatable, pool.Taken, pool.Pods, err)
	}

	t.Log("a node without pods, and numbers that do not stand packed")
	single := protowire.AppendVarint(protowire.AppendTag(nil, allocatableCPUs, protowire.VarintType), 7)
	pool, err = kubeletSocket(t, map[string]http.HandlerFunc{
		"GetAllocatableResources": message(single), "List": message(nil),
	}).CPUPool(t.Context())
	if err != nil || pool.Allocatable != model.CPUs(7) || !pool.Taken.Empty() {
		t.Errorf("got %s and %s, %v", pool.Allocatable, pool.Taken, err)
	}
}

// TestPodResourcesTrouble checks that each bad response is an error that names the reason.
func TestPodResourcesTrouble(t *testing.T) {
	good := message(packed(nil, allocatableCPUs, 1))
	for _, c := range []struct {
		name              string
		allocatable, list http.HandlerFunc
		says              string
	}{
		{"the kubelet is just starting", message(nil), nil, "has not started yet"},
		{"refused, without a body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", "8")
			w.Header().Set("Grpc-Message", "rejected by rate limit%21")
		}, nil, `gRPC status "8": "rejected by rate limit!"`},
		{"an error after the message", good, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write(make([]byte, 5))
			w.Header().Set("Grpc-Status", "13")
		}, `List: response 200 OK, gRPC status "13"`},
		{
			"no status", good, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5)) },
			`gRPC status ""`,
		},
		{"another server", func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, nil, "404"},
		{"cut short", good, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", "0")
			_, _ = w.Write([]byte{0, 0, 0, 0, 9, 1})
		}, "not one plain message"},
		{"not protobuf", message([]byte{0xff}), nil, "reading the kubelet's allocatable CPUs: reading the response"},
		{
			"a container that is cut short", good, message(nested(nil, listPods, []byte{podContainers<<3 | 2, 200})),
			"reading the CPUs of the kubelet's containers: reading the response",
		},
		{"a negative CPU", message(packed(nil, allocatableCPUs, 1, 1<<64-1)), nil, "-1 is not from 0 to 1023"},
		{"too many CPUs", good, message(podAnswer("a", "b", []uint64{1024})), "1024 is not from 0 to 1023"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := kubeletSocket(t,
				map[string]http.HandlerFunc{"GetAllocatableResources": c.allocatable, "List": c.list})
			pool, err := socket.CPUPool(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || !pool.Allocatable.Empty() {
				t.Errorf("got %+v, %v", pool, err)
			}
		})
	}
	t.Run("no socket", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kubelet.sock")
		if _, err := NewPodResources(path).CPUPool(t.Context()); !errors.Is(err, fs.ErrNotExist) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		p := kubeletSocket(t, map[string]http.HandlerFunc{
			"GetAllocatableResources": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		})
		p.limit = 10 * time.Millisecond
		if _, err := p.CPUPool(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func FuzzPodResources(f *testing.F) {
	f.Add(podAnswer("default", "db", []uint64{1, 130}, nil))
	f.Add(packed(nil, allocatableCPUs, 1, 2, 3))
	f.Fuzz(func(t *testing.T, answer []byte) {
		if taken, pods, err := parsePodResources(answer); err != nil && (!taken.Empty() || pods != nil) ||
			len(pods) == 0 && !taken.Empty() {
			t.Errorf("%q: %s of %v", answer, taken, pods)
		}
		_, _ = parseAllocatable(answer)
	})
}
