package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestFigure(t *testing.T) {
	var all []Request
	for i := range 200 {
		all = append(all, Request{Due: time.Second, Ready: time.Second + time.Duration(i+1)*time.Millisecond})
	}
	if got := Figure(all); got != 198*time.Millisecond {
		t.Error(got)
	}
	if got := Figure(nil); got != 0 {
		t.Error(got)
	}
}

// TestFigureForgets checks that answers before the window do not count.
func TestFigureForgets(t *testing.T) {
	f := &figure{answered: make([]Request, 5)}
	for i := range 5 {
		at := time.Duration(i) * time.Second
		f.add(Request{Due: at - time.Millisecond, Ready: at})
	}
	if latest := f.latest(4 * time.Second); len(latest) != 3 || latest[0].Ready != 2*time.Second {
		t.Errorf("%+v", latest)
	}
	if latest := f.latest(time.Minute); len(latest) != 0 {
		t.Errorf("%+v", latest)
	}
}

// TestServesFigure reads the figure while requests are answered after 20 ms each.
func TestServesFigure(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			time.Sleep(20 * time.Millisecond)
			_, _ = fmt.Fprintln(conn)
		}
	}()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := port.Addr().String()
	if err := port.Close(); err != nil {
		t.Fatal(err)
	}
	answers := make(chan string, 1)
	go func() {
		time.Sleep(700 * time.Millisecond)
		answer, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			answers <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		answers <- string(text)
	}()
	sent(t, Requests{
		Address: server.Addr().String(), Connections: 1, CPU: -1, Line: "x", Rates: Rates{10}, Length: time.Second, Seed: 1,
		Figure: address,
	})
	text := <-answers
	var seconds float64
	if _, err := fmt.Sscanf(text, FigureMetric+" %g\n", &seconds); err != nil || seconds < 0.02 || seconds > 1 {
		t.Errorf("%q, %v", strings.TrimSpace(text), err)
	}
	if _, err := http.Get("http://" + address + "/metrics"); err == nil {
		t.Error("the figure is served after the end")
	}
}
