package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestParting shows that a client learns on its own connection that the process ends, before that is closed.
func TestParting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(parting(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "allowed")
	})))
	defer server.Close()
	ask := func() (closes bool) {
		response, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); string(body) != "allowed" {
			t.Fatalf("%q: %v", body, err)
		}
		return response.Close
	}
	for _, ends := range []bool{false, false, true, true} {
		if ends {
			cancel()
		}
		if closes := ask(); closes != ends {
			t.Errorf("the process ends: %v; the connection does: %v", ends, closes)
		}
	}
}
