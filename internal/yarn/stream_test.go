package yarn

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// metered counts the bytes of answers that a client reads.
type metered struct {
	read int64
}

type meteredBody struct {
	io.ReadCloser
	m *metered
}

func (b meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.m.read += int64(n)
	return n, err
}

// RoundTrip implements [http.RoundTripper].
func (m *metered) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		response.Body = meteredBody{response.Body, m}
	}
	return response, err
}

// TestBombs has servers answer without end, in each way in which an answer can grow. The client gives up within its
// bounds of bytes and of elements.
func TestBombs(t *testing.T) {
	const most = 8 << 20
	large := `,{"id":"a:1","healthReport":"` + strings.Repeat("x", 1000) + `"}`
	for about, c := range map[string]struct {
		head, again string
		bytes       int64 // that may be read
		want        string
	}{
		"tiny elements":    {`{"nodes":{"node":[{"id":"a:1"}`, `,{"id":"a:1"}`, maxNodes*13 + 2*chunk, "more than 50000"},
		"empty elements":   {`{"nodes":{"node":[{"id":"a:1"}`, `,null`, 1 << 20, "a node without an id"},
		"one long text":    {`{"nodes":{"node":[{"id":"a:1"},{"id":"`, `aaaaaaaa`, maxElement + 4*chunk, "one element"},
		"a list within":    {`{"nodes":{"node":[{"id":"a:1","nodeLabels":["a"`, `,"a"`, maxElement + 4*chunk, "one element"},
		"a single element": {`{"nodes":{"node":{"id":"a:1"`, `,"x":1`, maxElement + 4*chunk, "one element"},
		"something else":   {`{"x":[1`, `,1`, maxElement + 4*chunk, "one element"},
		"large elements":   {`{"nodes":{"node":[{"id":"a:1"}`, large, most + 2*chunk, "more than 8388608 bytes"},
		"a deep answer":    {`{"x":`, `[`, 4 * chunk, "max depth"},
		"a long name":      {`{"`, `a`, maxElement + 4*chunk, "one element"},
		"no JSON":          {`<html>`, ` `, 2 * chunk, "invalid character"},
	} {
		t.Run(about, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", jsonType)
				again := []byte(strings.Repeat(c.again, 1000))
				for _, err := io.WriteString(w, c.head); err == nil; {
					_, err = w.Write(again)
				}
			}))
			defer s.Close()
			m := &metered{}
			rm, err := NewRM([]string{s.URL}, HTTPOptions{Transport: m, MaxAnswer: most})
			if err != nil {
				t.Fatal(err)
			}
			rm.servers.pause = 0
			kept := 0
			nodes, err := rm.NodesOf(t.Context(), func(string) bool { kept++; return false })
			if err == nil || !strings.Contains(err.Error(), c.want) || len(nodes) != 0 {
				t.Errorf("%d nodes, %v; want %q", len(nodes), err, c.want)
			}
			if m.read > rounds*c.bytes || kept > rounds*maxNodes {
				t.Errorf("%d bytes were read, at most %d may be; %d elements", m.read/rounds, c.bytes, kept/rounds)
			}
		})
	}
}

// TestStreamTolerates reads the same list from each way in which releases of Hadoop write it, with other values around.
func TestStreamTolerates(t *testing.T) {
	one := []Node{{ID: "a:1", Containers: 2}}
	for text, want := range map[string][]Node{
		`{"nodes":{"node":[{"id":"a:1","numContainers":2}]}}`:                             one,
		`{"nodes":{"node":{"id":"a:1","numContainers":"2"}}}`:                             one,
		`{"x":{"node":[1,{}]},"nodes":{"y":"z","node":[{"id":"a:1","numContainers":2}]}}`: one,
		`{"nodes":{"node":[]}}`: nil, `{"nodes":{"node":null}}`: nil, `{"nodes":{"node":{}}}`: nil, `{"nodes":{}}`: nil,
		`{"nodes":null}`: nil, `{"nodes":""}`: nil, `{"nodes":[]}`: nil, `{}`: nil,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", jsonType+";charset=utf-8")
			_, _ = io.WriteString(w, text)
		}))
		rm, err := NewRM([]string{s.URL}, HTTPOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := rm.Nodes(t.Context())
		s.Close()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
}
