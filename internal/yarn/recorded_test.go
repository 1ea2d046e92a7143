package yarn

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorded is a server that gives answers of a real ResourceManager or NodeManager, from testdata/rm.
type recorded struct {
	t *testing.T
	// answers lists, by method and path without the common prefix, the answers to give one after the other. The last is
	// repeated. An answer is a file's name without its ending, or the name with edits: "node old=>new;old=>new".
	answers map[string][]string

	mu   sync.Mutex
	sent []string // requests, with their query and body
}

func (r *recorded) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.t.Error(err)
	}
	key := req.Method + " " + strings.TrimPrefix(strings.TrimPrefix(req.URL.Path, "/ws/v1/cluster"), "/ws/v1/node")
	r.mu.Lock()
	defer r.mu.Unlock()
	line := key
	if req.URL.RawQuery != "" {
		line += "?" + req.URL.RawQuery
	}
	if len(body) > 0 {
		line += " " + string(body)
	}
	r.sent = append(r.sent, line)
	names := r.answers[key]
	if len(names) == 0 {
		r.t.Errorf("unexpected request %s", line)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if len(names) > 1 {
		r.answers[key] = names[1:]
	}
	answer := recording(r.t, names[0])
	defer answer.Body.Close()
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body) // a client that asks several servers at once leaves the slower ones
}

// requests returns the requests so far that start with a prefix.
func (r *recorded) requests(prefix string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, s := range r.sent {
		if strings.HasPrefix(s, prefix) {
			all = append(all, s)
		}
	}
	return all
}

// recording reads an answer from testdata/rm, with edits.
func recording(t testing.TB, name string) *http.Response {
	t.Helper()
	name, edit, _ := strings.Cut(name, " ")
	content, err := os.ReadFile(filepath.Join("testdata", "rm", name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(edit, ";") {
		from, to, ok := strings.Cut(part, "=>")
		if !ok {
			continue
		}
		if !bytes.Contains(content, []byte(from)) {
			t.Fatalf("%s has no %q to edit", name, from)
		}
		head, body, _ := bytes.Cut(content, []byte("\r\n\r\n"))
		content = append(append(withoutLength(head), "\r\n\r\n"...), bytes.ReplaceAll(body, []byte(from), []byte(to))...)
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(content)), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return answer
}

func withoutLength(head []byte) []byte {
	var lines []string
	for line := range strings.SplitSeq(string(head), "\r\n") {
		if !strings.HasPrefix(line, "Content-Length:") {
			lines = append(lines, line)
		}
	}
	return []byte(strings.Join(lines, "\r\n"))
}

// body returns the body of a recorded answer.
func body(t testing.TB, name string) []byte {
	t.Helper()
	answer := recording(t, name)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// serve starts a server with recorded answers, and returns it with its base address.
func serve(t *testing.T, answers map[string][]string) (*recorded, string) {
	t.Helper()
	r := &recorded{t: t, answers: answers}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return r, s.URL
}

// client returns a client that waits only briefly for a change to show.
func client(t *testing.T, addresses ...string) *RM {
	t.Helper()
	c, err := NewRM(addresses, HTTPOptions{Auth: Auth{User: "batch"}})
	if err != nil {
		t.Fatal(err)
	}
	c.readBack, c.servers.pause = 300*time.Millisecond, time.Millisecond
	return c
}
