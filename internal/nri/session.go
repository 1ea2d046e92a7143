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

// pluginService is the name of the service that a runtime calls.
const pluginService = "nri.pkg.api.v1alpha1.Plugin"

// introduction is how long a runtime may take until it has configured us. It takes one plugin after the other and gives
// each 5 s, so that a bad one before us costs us time.
const introduction = 20 * time.Second

// session is one connection to the runtime.
type session struct {
	client     *Client
	configured chan struct{}
	configure  sync.Once
	since      atomic.Pointer[time.Time] // when it was complete; nil: it is not yet

	// asking is held for reading while Place or Seen run, and taken for good when the session is over.
	asking sync.RWMutex
	over   bool

	// What the runtime told of its containers, which may come in pieces. It sends one after the other.
	pods       map[string]*api.PodSandbox
	containers []*api.Container
}

func newSession(c *Client) *session {
	return &session{client: c, configured: make(chan struct{})}
}

// run connects and returns, always with an error, when the connection is lost or the context has ended.
func (s *session) run(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", s.client.cfg.Socket)
	if err != nil {
		return fmt.Errorf("connecting to the container runtime's NRI: %w", err)
	}
	// Both sides call each other on the one connection.
	mux := multiplex.Multiplex(conn)
	defer func() { _ = mux.Close() }()
	listener, err := mux.Listen(multiplex.PluginServiceConn)
	if err != nil {
		return fmt.Errorf("preparing the NRI connection: %w", err)
	}
	calls, err := mux.Open(multiplex.RuntimeServiceConn)
	if err != nil {
		return fmt.Errorf("preparing the NRI connection: %w", err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return fmt.Errorf("preparing the NRI connection: %w", err)
	}
	server.RegisterService(pluginService, &ttrpc.ServiceDesc{Methods: s.methods()})
	lost, served := make(chan struct{}), make(chan struct{})
	runtime := ttrpc.NewClient(calls, ttrpc.WithOnClose(func() { close(lost) }))
	go func() {
		defer close(served)
		_ = server.Serve(ctx, listener) // it ends when we close it
	}()
	defer func() {
		_ = errors.Join(runtime.Close(), server.Close(), mux.Close()) // what else could be done about it
		<-served
		<-lost
		s.asking.Lock()
		s.over = true
		s.asking.Unlock()
	}()
	if err := s.introduce(ctx, runtime, lost); err != nil {
		return err
	}
	// From here on the runtime calls. How long it takes until it synchronizes is its own affair: it waits until no
	// container is just being created.
	select {
	case <-lost:
		return errors.New("the container runtime closed the NRI connection")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// introduce registers us as a plugin and waits until the runtime has said what it wants to know.
func (s *session) introduce(ctx context.Context, runtime *ttrpc.Client, lost <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, introduction)
	defer cancel()
	_, err := api.NewRuntimeClient(runtime).RegisterPlugin(ctx, &api.RegisterPluginRequest{
		PluginName: s.client.cfg.Name, PluginIdx: s.client.cfg.Index, NRIVersion: version.GetFromBuildInfo(),
	})
	if err != nil {
		return fmt.Errorf("registering with the container runtime's NRI as %s-%s: %w", s.client.cfg.Index, s.client.cfg.Name, err)
	}
	select {
	case <-s.configured:
		return nil
	case <-lost:
		return errors.New("the container runtime closed the NRI connection before it was configured")
	case <-ctx.Done():
		return fmt.Errorf("waiting to be configured by the container runtime's NRI: %w", ctx.Err())
	}
}

// methods are the calls that we take. The runtime makes only those to which Configure subscribes.
func (s *session) methods() map[string]ttrpc.Method {
	return map[string]ttrpc.Method{
		"Configure":       method(s, &api.ConfigureResponse{Events: int32(events())}, s.onConfigure),
		"Synchronize":     method(s, &api.SynchronizeResponse{}, s.onSynchronize),
		"CreateContainer": method(s, &api.CreateContainerResponse{}, s.onCreate),
		"UpdateContainer": method(s, &api.UpdateContainerResponse{}, s.onUpdate),
		"Shutdown":        method(s, &api.Empty{}, func(*api.Empty) *api.Empty { return &api.Empty{} }),
	}
}

func events() (mask api.EventMask) {
	return *mask.Set(api.Event_CREATE_CONTAINER, api.Event_UPDATE_CONTAINER)
}

// method makes sure that the runtime always gets an answer that it can use, because an error as the answer makes it fail
// what it is about to do. The answer that says nothing stands in for one that could not be found.
func method[Q, A any](s *session, nothing *A, answer func(*Q) *A) ttrpc.Method {
	return func(_ context.Context, unmarshal func(any) error) (result any, _ error) {
		began := time.Now()
		defer func() { s.client.count(time.Since(began)) }()
		defer func() {
			if cause := recover(); cause != nil {
				s.client.report(AboutAnswers, fmt.Errorf("answering the container runtime: panic: %v", cause))
				result = nothing
			}
		}()
		s.asking.RLock()
		defer s.asking.RUnlock()
		request := new(Q)
		if err := unmarshal(request); err != nil {
			s.client.report(AboutAnswers, fmt.Errorf("reading what the container runtime asks: %w", err))
			return nothing, nil
		}
		if s.over {
			return nothing, nil
		}
		return answer(request), nil
	}
}
