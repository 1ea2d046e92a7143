// Package impala drains executors of Apache Impala.
//
// No server of Impala is in a public registry of packages, so nothing here was run against one. The statement, its
// rights and its rules are those of docs/topics/impala_shutdown.xml; the pages of the web servers and the protocol are
// those of Impala's sources of August 2026 (commit b215952).
package impala

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

const (
	// krpcPort is the default port by which impalads speak to each other (--krpc_port).
	krpcPort = "27000"
	// askTimeout bounds the question to one executor. Many may be hung, and others have to be asked.
	askTimeout = time.Second
	// maxReply bounds an answer of HiveServer2, and the page of an executor, in bytes. They have a few thousand. Whoever
	// names a coordinator must not use up the memory of the manager, which is that of others too.
	maxReply = 256 << 10
	// maxBackends bounds the page /backends, in bytes. It has about 1 KiB for each executor.
	maxBackends = 2 << 20
)

// Options are those of a cluster.
type Options struct {
	// Coordinator is the base address of a coordinator's HiveServer2 over HTTP, such as http://impala:28000.
	Coordinator string
	// Web is the base address of the same coordinator's debug web server, such as http://impala:25000.
	Web string
	// Auth says who the caller is to HiveServer2. Its user needs the privilege ALL on the server, where Impala authorizes.
	Auth drain.Auth
}

// Drainer drains executors by the statement :SHUTDOWN of a coordinator. A shutdown cannot be taken back.
//
// An executor that shuts down waits for --shutdown_grace_period_s (120 s by default), in which the coordinators notice,
// and then for its queries. At the deadline it ends, busy or not; it cancels its queries up to
// --shutdown_query_cancel_period_s before that.
type Drainer struct {
	hs2 hs2
	web *drain.Client // of impalads
	at  string        // of the coordinator's
}

// New returns a Drainer.
func New(o Options) (*Drainer, error) {
	client, err := drain.NewClient(o.Auth, nil)
	if err != nil {
		return nil, err
	}
	// The debug web server has passwords of its own.
	web, err := drain.NewClient(drain.Auth{CA: o.Auth.CA, Dial: o.Auth.Dial}, nil)
	if err != nil {
		return nil, err
	}
	return &Drainer{
		hs2: hs2{
			client: client.Limited(maxReply), url: strings.TrimSuffix(o.Coordinator, "/") + "/cliservice", user: o.Auth.User,
		},
		web: web, at: strings.TrimSuffix(o.Web, "/"),
	}, nil
}

// hostName is what a host may be in a statement.
var hostName = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9.]{0,252}$`)

// Drain implements [drain.Drainer]. A second statement can only bring the deadline forward.
func (d *Drainer) Drain(ctx context.Context, w drain.Worker, within time.Duration) error {
	if !hostName.MatchString(w.Host) {
		return fmt.Errorf("shutting down Impala executor %.64q: that is no host name", w.Host)
	}
	statement := fmt.Sprintf(":SHUTDOWN('%s:%s', %d)", w.Host, krpcPort, int64(within/time.Second))
	if err := d.hs2.run(ctx, statement); err != nil {
		return fmt.Errorf("shutting down Impala executor %s, for which user %q needs the privilege ALL on the server: %w",
			w.Host, d.hs2.user, err)
	}
	return nil
}

// backend is an impalad on the page /backends of a coordinator.
type backend struct {
	KRPC      string `json:"krpc_address"`
	Address   string `json:"address"`
	Active    bool   `json:"is_active"` // neither quiescing nor blacklisted
	Quiescing bool   `json:"is_quiescing"`
	Cause     string `json:"blacklist_cause"`
}

// Status implements [drain.Drainer].
func (d *Drainer) Status(ctx context.Context, w drain.Worker) (drain.Status, error) {
	var page struct {
		Backends finder `json:"backends"`
	}
	page.Backends.host = w.Host
	if err := d.web.Limited(maxBackends).JSON(ctx, http.MethodGet, d.at+"/backends?json", nil, &page); err != nil {
		return drain.Status{}, fmt.Errorf("listing the executors of Impala: %w", errors.Join(drain.ErrCoordinator, err))
	}
	s := drain.Status{State: drain.Absent, Work: drain.UnknownWork}
	switch b := page.Backends.found; {
	case b == nil:
	case b.Quiescing:
		return d.quiescing(ctx, w), nil
	case b.Active:
		s.State = drain.Active
	default:
		s.Text = "the coordinator does not use it: " + b.Cause
	}
	return s, nil
}

// finder finds the backend of a host in the list of all.
type finder struct {
	host  string
	found *backend // nil: it is not listed
}

// UnmarshalJSON reads one backend after another, because a backend of nothing takes more memory than its bytes.
func (f *finder) UnmarshalJSON(list []byte) error {
	d := json.NewDecoder(bytes.NewReader(list))
	_, err := d.Token() // the bracket
	for err == nil && d.More() && f.found == nil {
		var b backend
		if err = d.Decode(&b); err == nil && (is(f.host, b.KRPC) || is(f.host, b.Address)) {
			f.found = &b
		}
	}
	return err
}

func is(host, address string) bool {
	h, _, err := net.SplitHostPort(address)
	return err == nil && strings.EqualFold(h, host)
}

// What the page of an executor that shuts down says. It ends by itself a second after all three are 0.
var left = regexp.MustCompile(
	`^shutdown grace period left: (\S+), .*queries registered on coordinator: (\d+), queries executing: (\d+),`)

// quiescing asks an executor that shuts down what it still has. One that does not answer shuts down by the account of
// the coordinator.
func (d *Drainer) quiescing(ctx context.Context, w drain.Worker) drain.Status {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s := drain.Status{State: drain.Draining, Work: drain.UnknownWork}
	var page struct {
		Status string `json:"shutdown_status"`
	}
	if err := d.web.Limited(maxReply).JSON(ctx, http.MethodGet, w.At("/?json"), nil, &page); err != nil {
		s.Text = fmt.Sprintf("asking Impala executor %s: %v", w.Host, err)
		return s
	}
	s.Text = page.Status
	if m := left.FindStringSubmatch(page.Status); m != nil {
		registered, _ := strconv.Atoi(m[2]) // digits; a number that is too large reads as the largest
		executing, _ := strconv.Atoi(m[3])
		if s.Work = registered + executing; s.Work == 0 && m[1] == "0" {
			s.State = drain.Drained
		}
	}
	return s
}
