package recorded

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const (
	queryTimeout = 2 * time.Minute
	attempts     = 5
	firstWait    = time.Second // before the second attempt; each later wait is twice as long
	// maxPoints is how many values a query asks for at most. A server's default limit is 50 million, of all queries
	// that run at the same time.
	maxPoints = 2_000_000
)

// Server is a Prometheus, or another server with its API.
type Server struct {
	api  prometheus.API
	name string // its address without a password
	wait time.Duration

	warnings []string // of the server, each once
}

// NewServer returns the server at an address. Requests go through the transport, which adds the user's credentials.
func NewServer(address string, transport http.RoundTripper) (*Server, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no address of a Prometheus; write one such as http://prometheus:9090", address)
	}
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: transport})
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", u.Redacted(), err)
	}
	return &Server{api: prometheus.NewAPI(client), name: u.Redacted(), wait: firstWait}, nil
}

// query is one of the server's ways to evaluate an expression.
type query func(context.Context) (model.Value, prometheus.Warnings, prometheus.Infos, error)

// try asks again, with growing waits, while the server is busy or cannot be reached. It keeps what the server says
// about its answer, such as that a part of it is missing.
func try[T model.Value](ctx context.Context, s *Server, expr string, ask query) (T, error) {
	wait := s.wait
	for n := 1; ; n++ {
		limited, cancel := context.WithTimeout(ctx, queryTimeout)
		value, warnings, _, err := ask(limited)
		cancel()
		for _, w := range warnings {
			if !slices.Contains(s.warnings, w) {
				s.warnings = append(s.warnings, w)
			}
		}
		v, ok := value.(T)
		if err == nil && !ok {
			err = fmt.Errorf("%s is a %s", expr, value.Type())
		}
		if err == nil || n == attempts || ctx.Err() != nil || !passing(err) {
			return v, s.explain(err)
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(wait):
			wait *= 2
		}
	}
}

// passing reports whether the same query may succeed later.
func passing(err error) bool {
	var e *prometheus.Error
	if !errors.As(err, &e) {
		return !errors.Is(err, context.DeadlineExceeded) // the network
	}
	return e.Type == prometheus.ErrServer && !tooMuch(err) ||
		e.Type == prometheus.ErrClient && strings.HasSuffix(e.Msg, " 429")
}

// tooMuch reports whether a query of a shorter time may succeed.
func tooMuch(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var e *prometheus.Error
	if !errors.As(err, &e) {
		return false
	}
	if e.Type == prometheus.ErrTimeout || strings.Contains(e.Detail, `"errorType":"timeout"`) { // with code 503
		return true
	}
	return slices.ContainsFunc([]string{"too many samples", "exceeded maximum resolution", "limit"},
		func(part string) bool { return strings.Contains(e.Msg, part) })
}

// explain adds what to do about an error.
func (s *Server) explain(err error) error {
	if err == nil {
		return nil
	}
	hint := "is it running, and is this its address?"
	var e *prometheus.Error
	if errors.As(err, &e) {
		switch {
		case strings.HasSuffix(e.Msg, " 401"), strings.HasSuffix(e.Msg, " 403"):
			hint = "name the credentials with --token-file, or with --user and --password-file"
		case e.Type == prometheus.ErrBadResponse, strings.HasSuffix(e.Msg, " 404"):
			hint = "is this the address of a Prometheus? A proxy may need a path, such as https://host/prometheus"
		case tooMuch(err):
			hint = "choose fewer series with --selector, or raise the server's query.max-samples and query.timeout"
		case e.Type == prometheus.ErrBadData:
			hint = "is the --selector right? It has matchers such as cluster=\"a\""
		default:
			hint = "see the server's log"
		}
	}
	return fmt.Errorf("asking %s: %w; %s", s.name, err, hint)
}

// at evaluates an expression at a time.
func (s *Server) at(ctx context.Context, expr string, t time.Time) (model.Vector, error) {
	return try[model.Vector](ctx, s, expr, func(ctx context.Context) (
		model.Value, prometheus.Warnings, prometheus.Infos, error,
	) {
		return s.api.Query(ctx, expr, t)
	})
}

// span is a time in which values are a step apart.
type span struct {
	begin time.Time // of the time that the first value covers
	count int       // of values
	step  time.Duration
}

// over evaluates an expression over a span, in pieces that have a tolerable number of values: series says how many
// series the expression reads. take gets each piece, with the index of its first value.
func (s *Server) over(
	ctx context.Context, expr string, all span, series int, take func(piece model.Matrix, first int),
) error {
	most := max(maxPoints/max(series, 1), 1)
	for first := 0; first < all.count; {
		n := min(most, all.count-first)
		// A value covers the time before it.
		begin := all.begin.Add(time.Duration(first+1) * all.step)
		piece, err := try[model.Matrix](ctx, s, expr, func(ctx context.Context) (
			model.Value, prometheus.Warnings, prometheus.Infos, error,
		) {
			return s.api.QueryRange(ctx, expr, prometheus.Range{
				Start: begin, End: begin.Add(time.Duration(n-1) * all.step), Step: all.step,
			})
		})
		switch {
		case err != nil && n > 1 && tooMuch(err) && ctx.Err() == nil:
			most = (n + 1) / 2
			continue
		case err != nil:
			return err
		}
		take(piece, first)
		first += n
	}
	return nil
}
