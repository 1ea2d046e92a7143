package program

import (
	"net/http"

	"github.com/waterline-io/waterline/internal/program/limited"
)

// atOnce computes so many answers at once, and lets further requests wait. The answers are sent afterwards, so callers
// that read slowly do not keep others waiting.
func atOnce(most int, handler http.Handler) http.Handler {
	turns := make(chan struct{}, most)
	compute := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			handler.ServeHTTP(w, r)
		case <-r.Context().Done(): // nobody waits any more
		}
	})
	return http.TimeoutHandler(compute, limited.WriteTimeout, "") // which keeps the answer until it is complete
}
