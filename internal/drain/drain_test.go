package drain

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestSilent checks that only a server that does not answer at all counts as silent.
func TestSilent(t *testing.T) {
	closes := func(after string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_, _ = c.Write([]byte(after))
				_ = c.Close()
			}
		}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		answer http.HandlerFunc // nil: nobody is there
		want   bool
	}{
		"nobody":              {want: true},
		"nobody, and no time": {ctx: cancelled},
		"an error": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}},
		"no JSON":       {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }},
		"nothing":       {answer: closes("")},
		"half a status": {answer: closes("HTTP/1.1 2")},
		"half a header": {answer: closes("HTTP/1.1 200 OK\r\nContent-")},
		"nothing in time": {
			ctx: late, want: true,
			answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, // until the client gives up
		},
		"cut short": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			url := gone.URL
			if c.answer != nil {
				s := httptest.NewServer(c.answer)
				defer s.Close()
				url = s.URL
			}
			client, err := NewClient(Auth{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			var into any
			err = client.JSON(c.ctx, http.MethodPost, url, nil, &into)
			if err == nil || Silent(err) != c.want {
				t.Errorf("%v: silent %v, want %v", err, Silent(err), c.want)
			}
		})
	}
}

// TestLimited checks that a client takes answers up to its limit.
func TestLimited(t *testing.T) {
	const most = 1000
	size := most
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, size))
	}))
	defer s.Close()
	all, err := NewClient(Auth{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := all.Limited(most)
	if answer, err := client.Send(t.Context(), http.MethodGet, s.URL, "", nil); err != nil || len(answer) != most {
		t.Errorf("%d bytes, %v", len(answer), err)
	}
	size++
	_, err = client.Send(t.Context(), http.MethodGet, s.URL, "", nil)
	if err == nil || !strings.Contains(err.Error(), "more than 1000 bytes") {
		t.Errorf("an answer that is too large: %v", err)
	}
	if answer, err := all.Send(t.Context(), http.MethodGet, s.URL, "", nil); err != nil || len(answer) != size {
		t.Errorf("without the limit: %d bytes, %v", len(answer), err)
	}
}
