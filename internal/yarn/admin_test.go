package yarn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// rpcServer answers each call with the next of some recorded answers; the last is repeated.
type rpcServer struct {
	net.Listener
	answers [][]byte

	mu   sync.Mutex
	sent [][]byte // all that was sent on each connection
}

func serveRPC(t *testing.T, answers ...[]byte) *rpcServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rpcServer{Listener: l, answers: answers}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.serve(conn)
		}
	}()
	return s
}

func (s *rpcServer) serve(conn net.Conn) {
	defer conn.Close()
	var all bytes.Buffer
	from := io.TeeReader(conn, &all)
	const header = 7
	if _, err := io.ReadFull(from, make([]byte, header)); err != nil {
		return
	}
	for range 2 { // the context and the call
		if _, err := readFrame(from); err != nil {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, all.Bytes())
	answer := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	_, _ = conn.Write(answer)
}

func (s *rpcServer) address() string { return s.Addr().String() }

func (s *rpcServer) calls() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// rpcRecording reads bytes that Hadoop's own client or a ResourceManager sent.
func rpcRecording(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "rpc", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// adminClient returns a client that names itself as Hadoop's own does.
func adminClient(t *testing.T, addresses ...string) *Admin {
	t.Helper()
	a, err := NewAdmin(addresses, AdminOptions{Auth: Auth{User: "root"}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	a.rpc.caller = "CLI"
	a.servers.pause = time.Millisecond
	return a
}

// TestLikeHadoop checks that each call is, byte for byte, what Hadoop's own client sends. Only the client's id, which
// is random, is copied.
func TestLikeHadoop(t *testing.T) {
	tests := map[string]func(*Admin) error{
		"refresh":          func(a *Admin) error { return a.RefreshNodes(t.Context()) },
		"refresh-graceful": func(a *Admin) error { return a.RefreshNodesGracefully(t.Context(), 59*time.Second+1) },
		"resize": func(a *Admin) error {
			return a.SendResizes(t.Context(), []NodeResize{{"nm1.bed:45454", Resource{1024, 2}, 5 * time.Second}})
		},
		"resize-unknown": func(a *Admin) error {
			return a.SendResizes(t.Context(), []NodeResize{{"nope.bed:1", Resource{1024, 2}, 5 * time.Second}})
		},
	}
	refused := map[string]RPCError{
		"resize-unknown": {Method: "updateNodeResource", Class: "org.apache.hadoop.yarn.exceptions.YarnException",
			Message: "Resource update get failed on all nodes due to change resource on an unrecognized node: nope.bed:1"},
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			want := rpcRecording(t, name+".sent")
			server := serveRPC(t, rpcRecording(t, name+".received"))
			a := adminClient(t, server.address())
			id := bytes.Index(want, []byte{0x22, 16}) // field 4 of the first header
			copy(a.rpc.clientID[:], want[id+2:])
			err := call(a)
			var exception *RPCError
			if expected, is := refused[name]; is {
				expected.Address = server.address()
				if !errors.As(err, &exception) || *exception != expected {
					t.Errorf("%#v, not %#v", err, expected)
				}
			} else if err != nil {
				t.Error(err)
			}
			if sent := server.calls(); len(sent) != 1 || !bytes.Equal(sent[0], want) {
				t.Errorf("sent\n%q, not\n%q", sent, want)
			}
		})
	}
}

func TestAdminFailover(t *testing.T) {
	standby := serveRPC(t, rpcRecording(t, "standby.received"))
	active := serveRPC(t, rpcRecording(t, "refresh.received"))
	a := adminClient(t, standby.address(), active.address())
	for range 2 {
		if err := a.RefreshNodes(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if s, n := len(standby.calls()), len(active.calls()); s != 1 || n != 2 {
		t.Errorf("the standby got %d calls and the active one %d, not 1 and 2", s, n)
	}
	a = adminClient(t, standby.address())
	if err := a.RefreshNodes(t.Context()); !errors.Is(err, ErrNoActive) || !errors.Is(err, ErrStandby) {
		t.Errorf("no active one: %v", err)
	}
}

// TestAdminAnswersThatAreNone checks servers that do not speak Hadoop's RPC, or stop to.
func TestAdminAnswersThatAreNone(t *testing.T) {
	ok := rpcRecording(t, "refresh.received")
	for name, answer := range map[string][]byte{
		"nothing": nil, "cut off": ok[:len(ok)-1], "another protocol": []byte("HTTP/1.1 400 Bad Request\r\n"),
		"garbage": {0, 0, 0, 2, 0xff, 0xff}, "no message": {0, 0, 0, 1, 0}, "no header": {0, 0, 0, 0},
	} {
		a := adminClient(t, serveRPC(t, answer).address())
		if err := a.RefreshNodes(t.Context()); !errors.Is(err, ErrNoActive) {
			t.Errorf("%s: %v", name, err)
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := adminClient(t, silent.Addr().String())
	a.rpc.timeout = 50 * time.Millisecond
	if err := a.RefreshNodes(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that says nothing: %v", err)
	}
	a.rpc.timeout = time.Hour // the test's own limit is shorter
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.RefreshNodes(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("a call that was given up: %v", err)
	}
}

// TestConfiguredTimeout checks that no timeout is sent where the ResourceManager's own setting is to count: 0 would end
// the containers of all hosts without a time in the list.
func TestConfiguredTimeout(t *testing.T) {
	server := serveRPC(t, rpcRecording(t, "refresh-graceful.received"))
	a := adminClient(t, server.address())
	for _, timeout := range []time.Duration{0, ConfiguredTimeout} {
		if err := a.RefreshNodesGracefully(t.Context(), timeout); err != nil {
			t.Fatal(err)
		}
	}
	graceful := number64(nil, 1, decommissionGraceful)
	calls := server.calls()
	if len(calls) != 2 || !bytes.HasSuffix(calls[0], append(graceful, 2<<3, 0)) || !bytes.HasSuffix(calls[1], graceful) {
		t.Errorf("sent %q", calls)
	}
}

func TestAdminRefused(t *testing.T) {
	for _, bad := range [][]string{nil, {"rm1"}, {"rm1:8033", ""}} {
		if _, err := NewAdmin(bad, AdminOptions{Auth: Auth{User: "root"}}); err == nil {
			t.Errorf("the addresses %q are accepted", bad)
		}
	}
	if _, err := NewAdmin([]string{"rm1:8033"}, AdminOptions{}); err == nil {
		t.Error("no user is accepted: the call would be made as the ResourceManager itself")
	}
	server := serveRPC(t, rpcRecording(t, "refresh.received"))
	a := adminClient(t, server.address())
	for _, timeout := range []time.Duration{-time.Second, math.MaxInt64} {
		if err := a.RefreshNodesGracefully(t.Context(), timeout); err == nil {
			t.Errorf("the timeout %v is accepted", timeout)
		}
	}
	if err := a.SendResizes(t.Context(), []NodeResize{{"nm1.bed", Resource{1, 1}, 0}}); err == nil {
		t.Error("a node without a port is accepted")
	}
	if len(server.calls()) != 0 {
		t.Errorf("sent %q", server.calls())
	}
}

// FuzzRPC checks that no answer makes parsing panic or take much memory.
func FuzzRPC(f *testing.F) {
	for _, name := range []string{"refresh", "resize-unknown", "standby"} {
		f.Add(rpcRecording(f, name+".received"))
	}
	f.Add(frame(nil, number64(nil, 2, 0), embedded(nil, 1, nodeMessage("nm1.bed:45454"))))
	f.Fuzz(func(t *testing.T, stream []byte) {
		content, err := readFrame(bytes.NewReader(stream))
		if err != nil {
			return
		}
		if int(binary.BigEndian.Uint32(stream)) != len(content) {
			t.Errorf("a frame of %d bytes was read as %d", binary.BigEndian.Uint32(stream), len(content))
		}
		_, _ = parseAnswer(content)
	})
}
