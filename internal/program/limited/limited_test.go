package limited

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, http.ErrServerClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return caller("") }

// caller is the address of a caller.
type caller string

func (c caller) Network() string { return "pipe" }
func (c caller) String() string  { return string(c) }

// from is a connection from an address.
type from struct {
	net.Conn
	caller caller
}

func (f from) RemoteAddr() net.Addr { return f.caller }

// dial connects.
func (p pipes) dial(address caller) net.Conn {
	mine, its := net.Pipe()
	p <- from{its, address}
	return mine
}

// bubble serves in a bubble of time, in which the test runs.
func bubble(t *testing.T, handler http.Handler, connections int, test func(t *testing.T, to pipes)) {
	synctest.Test(t, func(t *testing.T) {
		to := make(pipes)
		server := Server(handler, connections)
		ended := make(chan struct{})
		go func() { _ = server.Serve(to); close(ended) }()
		test(t, to)
		close(to)
		_ = server.Close()
		<-ended
	})
}

// ask sends a request for a path, and returns the status of the answer.
func ask(conn net.Conn) (status int, err error) {
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

// isClosed reports whether the server has closed a connection, or does so within the time.
func isClosed(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, conn)
	_ = conn.SetReadDeadline(time.Time{})
	return err == nil // the end
}

// TestServerEndsConnections checks that a connection ends that sends no request, or an unfinished one, or does not read
// its answer, or is idle.
func TestServerEndsConnections(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, 1<<20))
	})
	const post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
	for name, c := range map[string]struct {
		sends string
		asks  bool
		after time.Duration
		ends  time.Duration
	}{
		"nothing":         {"", false, 0, headerTimeout},
		"half a header":   {"GET / HT", false, 0, headerTimeout},
		"half a body":     {post + "abc", false, 0, readTimeout + WriteTimeout},
		"an unread reply": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, WriteTimeout, 0},
		"idle":            {"", true, 0, idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, handler, 10, func(t *testing.T, to pipes) {
				conn := to.dial("a")
				if c.asks {
					if status, err := ask(conn); status != http.StatusOK || err != nil {
						t.Fatal(status, err)
					}
				} else if _, err := fmt.Fprint(conn, c.sends); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.after)
				synctest.Wait()
				if !isClosed(conn, c.ends+time.Second) {
					t.Error("the connection is still open")
				}
			})
		})
	}
}

// TestServerConnections checks which connections are closed when there are too many: the oldest silent ones of the
// address that has most, also if they have begun a request.
func TestServerConnections(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	const most = 8
	bubble(t, handler, most, func(t *testing.T, to pipes) {
		scraper := to.dial("10.0.0.1:4000")
		if status, err := ask(scraper); status != http.StatusOK || err != nil {
			t.Fatal(status, err)
		}
		var conns []net.Conn
		for i := range 5 * most {
			conn := to.dial(caller(fmt.Sprintf("10.0.0.2:%d", i)))
			if i%2 == 0 {
				_, _ = fmt.Fprint(conn, "G") // the server counts it as busy
			}
			conns = append(conns, conn)
			synctest.Wait()
		}
		open := 0
		for i, conn := range conns {
			closed := isClosed(conn, time.Millisecond)
			if !closed {
				open++
			}
			if wants := i < len(conns)-(most-1); closed != wants {
				t.Errorf("connection %d is closed: %v", i, closed)
			}
		}
		if open != most-1 {
			t.Errorf("%d connections of the one caller are open, want %d", open, most-1)
		}
		if status, err := ask(scraper); status != http.StatusOK || err != nil {
			t.Errorf("the other caller's connection: %d, %v", status, err)
		}
		probe := to.dial("10.0.0.3:1")
		if status, err := ask(probe); status != http.StatusOK || err != nil {
			t.Errorf("a new caller: %d, %v", status, err)
		}
	})
}
