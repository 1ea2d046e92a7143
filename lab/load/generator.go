package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// AnswerTimeout is how long the generator waits for missing answers after the last request.
const AnswerTimeout = 30 * time.Second

// LateLimit is how late a generator may send requests, p99, before the figures are its own.
const LateLimit = time.Millisecond

// Requests says which requests a generator sends, where to, and when.
type Requests struct {
	Dir         string        // with the FIFOs of a [Server]; "": Address
	Address     string        // of a server: the path of a Unix socket, or host:port
	Connections int           // to the address
	CPU         int           // on which the generator stays; -1: any
	Prioritize  bool          // the generator comes before everything else on the machine
	Watch       int           // pid of the server, whose times are read for each request; 0: none
	Line        string        // the request
	Rates       Rates         // requests a second
	Lead        time.Duration // before the rates apply, at the first of them
	Length      time.Duration // for which the rates apply
	Seed        uint64        // of the random moments
	Figure      string        // address at which its latency is served as [FigureMetric]; "": nowhere
}

// Request is one request and its outcome. All times are since the start of the generator.
type Request struct {
	Due, Sent, Ready time.Duration  // Ready is 0 if there was no answer
	Refused          bool           // the answer was an error
	Ahead            int            // requests without an answer when this one was sent
	Server           host.Schedstat // of the server from then until the answer; 0 if it was not watched
	Took             time.Duration  // CPU time of the server since then, or since the last answer if later; 0 likewise
}

// Latency is counted from when the request was due. Counted from when it was sent, it would leave out how long a slow
// server, or a late generator, makes users wait.
func (r Request) Latency() time.Duration { return r.Ready - r.Due }

// Late is how long after it was due the request was sent.
func (r Request) Late() time.Duration { return r.Sent - r.Due }

// Outcome is what became of all requests.
type Outcome struct {
	Scheduled string // scheduling class of the generator
	Requests  []Request
}

// Generator is a running generator of requests. It ends by itself.
type Generator struct {
	*sandbox.Process
	out bytes.Buffer
}

// StartGenerator starts a generator in a cgroup; "": that of this process. It sends requests whether or not earlier
// ones were answered.
func StartGenerator(s *sandbox.Sandbox, group string, r Requests) (*Generator, error) {
	g := &Generator{}
	var err error
	g.Process, err = s.Start(sandbox.Command{
		Name: "the generator", Group: group, Ends: true, Stdout: &g.out, Helper: "request", Input: r,
	})
	return g, err
}

// Outcome waits until the generator has ended, and returns what became of the requests.
func (g *Generator) Outcome(ctx context.Context) (o Outcome, err error) {
	if err := g.Wait(ctx); err != nil {
		return o, err
	}
	if err := json.Unmarshal(g.out.Bytes(), &o); err != nil {
		return o, fmt.Errorf("reading what became of the requests: %w", err)
	}
	return o, nil
}
