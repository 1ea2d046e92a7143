package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/nri/pkg/version"
	"github.com/containerd/ttrpc"
)

// pluginService is the name of the service that the runtime calls.
const pluginService = "nri.pkg.api.v1alpha1.Plugin"

// configureTimeout is the time limit for the runtime to configure this plugin. The runtime configures one
// plugin after the other and waits up to 5 s for each, so a slow plugin before this one delays it.
const configureTimeout = 20 * time.Second

// session is one connection to the runtime.
type session struct {
	client     *Client
	configured chan struct{}
	configure  sync.Once
	since      atomic.Pointer[time.Time] // time of the last synchronization; nil: none yet
	timeout    atomic.Int64              // how long the runtime waits for an answer, in nanoseconds; 0: not known

	// calls is locked for reading during each call of the runtime, so that closed waits for Place, Start and Runs to
	// return.
	calls  sync.RWMutex
	closed bool

	// The runtime's pods and containers received so far; they may come in several messages, one after the other.
	pods       map[string]*api.PodSandbox
	containers []*api.Container
}

func newSession(c *Client) *session {
	return &session{client: c, configured: make(chan struct{})}
}

// run connects to the runtime. It returns when the connection is lost or the context has ended, always with an
// error.
func (s *session) run(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", s.client.cfg.Socket)
	if err != nil {
		return fmt.Errorf("connecting to the container runtime's NRI: %w", err)
	}
	// Both sides send requests on the same connection.
	mux := multiplex.Multiplex(conn)
	defer func() { _ = mux.Close() }()
	listener, err := mux.Listen(multiplex.PluginServiceConn)
	if err != nil {
		return fmt.Errorf("preparing the NRI connection: %w", err)
	}
	requests, err := mux.Open(multiplex.RuntimeServiceConn)
	if err != nil {
		return fmt.Errorf("preparing the NRI connection: %w", err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return fmt.Errorf("preparing the NRI connection: %w", err)
	}
	server.RegisterService(pluginService, &ttrpc.ServiceDesc{Methods: s.methods()})
	lost, served := make(chan struct{}), make(chan struct{})
	runtime := ttrpc.NewClient(requests, ttrpc.WithOnClose(func() { close(lost) }))
	go func() {
		defer close(served)
		_ = server.Serve(ctx, listener) // returns after server.Close
	}()
	defer func() {
		_ = errors.Join(runtime.Close(), server.Close(), mux.Close()) // the connection is unusable in any case
		<-served
		<-lost
		s.calls.Lock()
		s.closed = true
		s.calls.Unlock()
	}()
	if err := s.register(ctx, runtime, lost); err != nil {
		return err
	}
	// From here on the runtime sends the requests. Synchronize has no time limit, because the runtime first waits until
	// no container is being created.
	select {
	case <-lost:
		return errors.New("the container runtime closed the NRI connection")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// register registers this client as a plugin and waits until the runtime has configured it.
func (s *session) register(ctx context.Context, runtime *ttrpc.Client, lost <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	_, err := api.NewRuntimeClient(runtime).RegisterPlugin(ctx, &api.RegisterPluginRequest{
		PluginName: s.client.cfg.Name, PluginIdx: s.client.cfg.Index, NRIVersion: version.GetFromBuildInfo(),
	})
	if err != nil {
		return fmt.Errorf("registering with the container runtime's NRI as %s-%s: %w",
			s.client.cfg.Index, s.client.cfg.Name, err)
	}
	select {
	case <-s.configured:
		return nil
	case <-lost:
		return errors.New("the container runtime closed the NRI connection before it configured this plugin")
	case <-ctx.Done():
		return fmt.Errorf("waiting to be configured by the container runtime's NRI: %w", ctx.Err())
	}
}

// methods returns the handlers of the runtime's requests. The runtime sends only those that the answer to
// Configure selects.
func (s *session) methods() map[string]ttrpc.Method {
	return map[string]ttrpc.Method{
		"Configure":       method(s, &api.ConfigureResponse{Events: int32(events())}, s.onConfigure),
		"Synchronize":     method(s, &api.SynchronizeResponse{}, s.onSynchronize),
		"CreateContainer": method(s, &api.CreateContainerResponse{}, s.onCreate),
		"StartContainer":  waits(s, &api.StartContainerResponse{}, s.onStart),
		"UpdateContainer": method(s, &api.UpdateContainerResponse{}, s.onUpdate),
		"StateChange":     waits(s, &api.Empty{}, s.onStateChange), // starts of containers, before NRI 0.12
		"Shutdown":        method(s, &api.Empty{}, func(*api.Empty) *api.Empty { return &api.Empty{} }),
	}
}

func events() (mask api.EventMask) {
	return *mask.Set(api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_UPDATE_CONTAINER)
}

// method wraps a handler so that the runtime always gets a usable answer; an error would make the runtime's
// operation fail. The answer nothing replaces one that the handler could not give.
func method[Q, A any](s *session, nothing *A, answer func(*Q) *A) ttrpc.Method {
	handle := waits(s, nothing, func(_ context.Context, q *Q) *A { return answer(q) })
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		began := time.Now()
		defer func() { s.client.count(time.Since(began)) }()
		return handle(ctx, unmarshal)
	}
}

// waits is method for a handler that may wait, and whose time is not counted.
func waits[Q, A any](s *session, nothing *A, answer func(context.Context, *Q) *A) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (result any, _ error) {
		defer s.client.requests.Add(1)
		defer func() {
			if cause := recover(); cause != nil {
				s.client.report(AboutAnswers, fmt.Errorf("answering the container runtime: panic: %v", cause))
				result = nothing
			}
		}()
		s.calls.RLock()
		defer s.calls.RUnlock()
		request := new(Q)
		if err := unmarshal(request); err != nil {
			s.client.report(AboutAnswers, fmt.Errorf("reading a request of the container runtime: %w", err))
			return nothing, nil
		}
		if s.closed {
			return nothing, nil
		}
		return answer(ctx, request), nil
	}
}
