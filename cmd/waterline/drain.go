package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/waterline-io/waterline/internal/decide/cluster/shuffle"
	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/drain/celeborn"
	"github.com/waterline-io/waterline/internal/drain/uniffle"
)

// shuffleService says which service is asked, and as whom.
type shuffleService struct {
	uniffle, celeborn, user, passwordFile, caFile string
	stays                                         bool // workers of Celeborn stay, so that a drain can be taken back
}

func drainShuffleCommand() *cobra.Command {
	var s shuffleService
	var timeout time.Duration
	var undo bool
	var workers []drain.Worker
	c := &cobra.Command{
		Use:   "shuffle --uniffle|--celeborn ADDRESS SERVER=ADDRESS...",
		Short: "Drain servers of Apache Uniffle or Celeborn before their end",
		Long: `Drain servers of Apache Uniffle or Celeborn, and wait until nobody needs their data. Then they can be ended without
harm to jobs. No data moves, so a drain takes as long as the longest application with data on the server.

Each server is named as its coordinator or master lists it (IP-PORT for Uniffle, a host for Celeborn), with the address
of its own web server. A server that was drained ends by itself, unless it is set not to.

--undo takes drains back: the servers get new shuffles again. A server of Uniffle that was empty has ended by then. A
worker of Celeborn must have been drained with --stay, which keeps it idle until somebody ends it.

After --timeout, the servers go on draining and the command ends. It never says that a server with data can be ended:
whether jobs keep replicas is for a person to know (docs/shuffle.md).

The exit code is 0 if all servers are drained, and 1 if one is lost, still has data after --timeout, or does not answer.
It is 1 too if a worker of Celeborn is still excluded at its master, which a drain begins with.
With --undo, it is 0 if all drains were taken back.`,
		Example: `  waterline drain shuffle --uniffle http://coordinator:19998 10.0.0.1-19999=http://10.0.0.1:19996
  waterline drain shuffle --celeborn http://master:9098 --timeout 2h worker-3=http://worker-3:9096
  waterline drain shuffle --celeborn http://master:9098 --stay worker-3=http://worker-3:9096
  waterline drain shuffle --celeborn http://master:9098 --undo worker-3=http://worker-3:9096`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if workers, err = shuffleServers(args); err == nil {
				switch {
				case (s.uniffle == "") == (s.celeborn == ""):
					err = errors.New("name the coordinator with --uniffle, or the master with --celeborn")
				case !webAddress(s.uniffle + s.celeborn):
					err = fmt.Errorf("%q is no address of a web server, such as http://coordinator:19998", s.uniffle+s.celeborn)
				case (s.user == "") != (s.passwordFile == ""):
					err = errors.New("write --user and --password-file, or neither")
				case s.stays && (s.uniffle != "" || undo):
					err = errors.New("--stay goes with --celeborn, and without --undo")
				case timeout <= 0:
					err = errors.New("--timeout must be positive, such as 6h")
				}
			}
			return usageError(err)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			s.stays = s.stays || undo
			by, err := s.drainer()
			if err != nil {
				return fmt.Errorf("draining shuffle servers: %w", err)
			}
			if undo {
				return undrainShuffle(c.Context(), c.OutOrStdout(), by, workers)
			}
			return drainShuffle(c.Context(), c.OutOrStdout(), by, workers, timeout)
		},
	}
	f := c.Flags()
	f.StringVar(&s.uniffle, "uniffle", "", "base address of the coordinator's web server")
	f.StringVar(&s.celeborn, "celeborn", "", "base address of the master's web server; of several masters, the leader's")
	f.DurationVar(&timeout, "timeout", 6*time.Hour, "how long to wait")
	f.BoolVar(&s.stays, "stay", false, "workers of Celeborn stay when they are drained, so that --undo can take it back")
	f.BoolVar(&undo, "undo", false, "take drains back, as far as the service can")
	f.StringVar(&s.user, "user", "", "user for the service, where it wants one")
	f.StringVar(&s.passwordFile, "password-file", "", "file with the user's password")
	f.StringVar(&s.caFile, "ca-file", "", "PEM file of the authorities that may sign https servers")
	return c
}

// shuffleServers reads the names of servers and the addresses of their web servers.
func shuffleServers(args []string) ([]drain.Worker, error) {
	var all []drain.Worker
	for _, arg := range args {
		name, address, _ := strings.Cut(arg, "=")
		if name == "" || !webAddress(address) {
			return nil, fmt.Errorf("%q is no server with the address of its web server, such as "+
				"10.0.0.1-19999=http://10.0.0.1:19996", arg)
		}
		all = append(all, drain.Worker{Host: name, URL: address})
	}
	if len(all) == 0 {
		return nil, errors.New("name the servers to drain, such as 10.0.0.1-19999=http://10.0.0.1:19996")
	}
	return all, nil
}

func webAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func (s *shuffleService) drainer() (drain.Drainer, error) {
	auth := drain.Auth{User: s.user}
	if s.passwordFile != "" {
		password, err := os.ReadFile(s.passwordFile)
		if err != nil {
			return nil, err
		}
		auth.Password = strings.TrimRight(string(password), "\r\n")
	}
	if s.caFile != "" {
		var err error
		if auth.CA, err = os.ReadFile(s.caFile); err != nil {
			return nil, err
		}
	}
	if s.uniffle != "" {
		return uniffle.New(s.uniffle, auth)
	}
	if s.stays {
		return celeborn.NewReversible(s.celeborn, auth)
	}
	return celeborn.New(s.celeborn, auth)
}

// drainInterval is the time between two looks at shuffle servers. Their heartbeats are 10 s and 30 s apart.
const drainInterval = 5 * time.Second

// askedAtOnce is how many shuffle servers are asked at a time, so that one that hangs does not delay all others.
const askedAtOnce = 16

// atOnce calls f for 0 to n-1, a few at a time.
func atOnce(n int, f func(i int)) {
	var all errgroup.Group
	all.SetLimit(askedAtOnce)
	for i := range n {
		all.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = all.Wait()
}

// undrainShuffle takes the drains of servers back.
func undrainShuffle(ctx context.Context, out io.Writer, by drain.Drainer, workers []drain.Worker) error {
	reverser, can := by.(drain.Reverser)
	if !can {
		return errors.New("the service cannot take drains back")
	}
	failed := make([]error, len(workers))
	atOnce(len(workers), func(i int) {
		if err := reverser.Undrain(ctx, workers[i]); err != nil {
			failed[i] = fmt.Errorf("taking back the drain of %s: %w", workers[i].Host, err)
		}
	})
	for i, w := range workers {
		if failed[i] == nil {
			fmt.Fprintf(out, "%s: it gets shuffles again\n", w.Host)
		}
	}
	return errors.Join(failed...)
}

// excluder is a service that keeps new shuffles away from a server until the service knows by itself that the server
// drains. It is for a Status to end that, so servers are asked for theirs until it has.
type excluder interface {
	Excludes(w drain.Worker) bool
}

// drainShuffle drains servers and waits for them.
func drainShuffle(
	ctx context.Context, out io.Writer, by drain.Drainer, workers []drain.Worker, timeout time.Duration,
) error {
	in := shuffle.Input{Settings: shuffle.Settings{Drain: timeout}, Servers: make([]shuffle.Server, len(workers))}
	said, texts, done := make([]string, len(workers)), make([]string, len(workers)), make([]bool, len(workers))
	for i, w := range workers {
		in.Servers[i] = shuffle.Server{Name: w.Host, Leaves: true}
	}
	excludes := func(i int) bool {
		e, can := by.(excluder)
		return can && e.Excludes(workers[i])
	}
	for began := time.Now(); ; {
		in.Now = time.Now()
		atOnce(len(workers), func(i int) {
			if done[i] && !excludes(i) {
				return
			}
			status, err := by.Status(ctx, workers[i])
			if done[i] && err == nil && status.State != drain.Drained {
				return // another one has its name by now
			}
			if texts[i] = status.Text; err != nil {
				texts[i] = err.Error()
			}
			if err == nil && status.Work > 0 {
				texts[i] = fmt.Sprintf("%s, %d left", texts[i], status.Work)
			}
			if !done[i] {
				in.Servers[i].State = shuffle.State(status.State) // "" with an error
			}
		})
		steps := shuffle.Next(&in)
		atOnce(len(workers), func(i int) {
			if done[i] || steps[i].Verb != shuffle.Drain {
				return
			}
			if err := by.Drain(ctx, workers[i], timeout); err != nil {
				texts[i] = err.Error()
				return
			}
			s := &in.Servers[i]
			s.Asked = in.Now
			if workers[i].Asked = true; s.Since.IsZero() {
				s.Since = in.Now
			}
		})
		left, lost, waits := 0, 0, false
		var excluded []string
		for i, step := range steps {
			s := &in.Servers[i]
			if line := fmt.Sprintf("%s: %s: %s", s.Name, step.Why, texts[i]); line != said[i] {
				said[i] = line
				fmt.Fprintln(out, strings.TrimSuffix(line, ": "))
			}
			switch {
			case s.State == shuffle.Lost:
				lost++
			case step.Verb == shuffle.End:
				done[i] = true
			default:
				left++
			}
			if excludes(i) {
				excluded, waits = append(excluded, s.Name), waits || done[i]
			}
		}
		state := drainState(len(workers), left, lost, excluded)
		switch {
		case left == 0 && !waits && state != "":
			return errors.New(state)
		case left == 0 && !waits:
			return nil
		case in.Now.Sub(began) >= timeout:
			return fmt.Errorf("after %s, %s", timeout, state)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", state, ctx.Err())
		case <-time.After(drainInterval):
		}
	}
}

// drainState says what is wrong with the drain of n servers if it ends now: how many still drain, how many are lost,
// and which are excluded; "": nothing.
func drainState(n, left, lost int, excluded []string) string {
	var all []string
	if lost > 0 {
		all = append(all, fmt.Sprintf("of %d servers, %d ended with data that applications need", n, lost))
	}
	if left > 0 {
		all = append(all, fmt.Sprintf("%d of %d servers are not drained; they go on draining", left, n))
	}
	if len(excluded) > 0 {
		all = append(all, fmt.Sprintf("still excluded at the master by this drain: %s (docs/shuffle.md says how to end that)",
			strings.Join(excluded, ", ")))
	}
	return strings.Join(all, "; ")
}
