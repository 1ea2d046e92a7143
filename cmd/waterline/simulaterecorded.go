package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/sim/recorded"
)

// recordedRun says which recorded cluster is simulated.
type recordedRun struct {
	from     string // the address of a Prometheus, or a file
	save     string // file
	days     int
	until    string
	selector string

	tokenFile, user, passwordFile, caFile string
}

func (r *recordedRun) flags(flags *pflag.FlagSet) {
	flags.StringVar(&r.from, "from-prometheus", "", "simulate the nodes and pods that the Prometheus with this address "+
		"recorded, or a file that --save wrote")
	flags.StringVar(&r.save, "save", "", "save what is read from Prometheus into this file, to simulate it elsewhere")
	flags.IntVar(&r.days, "days", 3, "days to read, 1 to 8; the last one is simulated, the others teach the predictors")
	flags.StringVar(&r.until, "until", "", "last day to read, such as 2026-11-24 (default: yesterday, UTC)")
	flags.StringVar(&r.selector, "selector", "", "label matchers of the series to read, such as 'cluster=\"a\"'")
	flags.StringVar(&r.tokenFile, "token-file", "", "file with a bearer token for Prometheus")
	flags.StringVar(&r.user, "user", "", "user name for Prometheus")
	flags.StringVar(&r.passwordFile, "password-file", "", "file with the user's password for Prometheus")
	flags.StringVar(&r.caFile, "ca-file", "", "PEM file of the authorities that may sign Prometheus's certificate")
}

// remote reports whether a server is to be asked.
func (r *recordedRun) remote() bool {
	return strings.HasPrefix(r.from, "http://") || strings.HasPrefix(r.from, "https://")
}

// check returns an error that says which flag is wrong. changed reports whether a flag was given.
func (r *recordedRun) check(changed func(flag string) bool) error {
	if r.from != "" {
		for _, f := range []string{"nodes", "cores", "memory", "pods", "online"} {
			if changed(f) {
				return usageError(fmt.Errorf("--%s says what --from-prometheus reads; give one of them", f))
			}
		}
	}
	if !r.remote() {
		for _, f := range []string{"save", "days", "until", "selector", "token-file", "user", "password-file", "ca-file"} {
			if changed(f) {
				return usageError(fmt.Errorf("--%s needs --from-prometheus with an address, such as http://prometheus:9090", f))
			}
		}
		return nil
	}
	if r.days < 1 || r.days > recorded.MaxDays {
		return usageError(fmt.Errorf("--days %d: write a number from 1 to %d", r.days, recorded.MaxDays))
	}
	if (r.user == "") != (r.passwordFile == "") || r.user != "" && r.tokenFile != "" {
		return usageError(errors.New("credentials are --token-file, or --user and --password-file"))
	}
	_, err := r.end()
	return err
}

func (r *recordedRun) end() (time.Time, error) {
	if r.until == "" {
		return time.Now().UTC().Truncate(24 * time.Hour), nil
	}
	last, err := time.Parse(time.DateOnly, r.until)
	if end := last.AddDate(0, 0, 1); err == nil && !end.After(time.Now()) {
		return end, nil
	}
	return time.Time{}, usageError(fmt.Errorf("--until %q: write a day that is over, such as 2026-11-24", r.until))
}

func (r *recordedRun) read(ctx context.Context, line *progress.Line) (*recorded.Recording, error) {
	if !r.remote() {
		return recorded.Open(r.from)
	}
	transport, err := r.transport()
	if err != nil {
		return nil, err
	}
	server, err := recorded.NewServer(r.from, transport)
	if err != nil {
		return nil, err
	}
	end, err := r.end()
	if err != nil {
		return nil, err
	}
	read, err := recorded.Read(ctx, server, recorded.Request{
		Days: r.days, Until: end, Selector: r.selector,
		Progress: func(doing string) { line.Show(progress.Step{Experiment: "cluster", Doing: "reading " + doing}) },
	})
	if err != nil || r.save == "" {
		return read, err
	}
	return read, read.Save(r.save)
}

// transport returns a transport that adds the user's credentials.
func (r *recordedRun) transport() (http.RoundTripper, error) {
	c := rest.Config{
		Username: r.user, BearerTokenFile: r.tokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: r.caFile},
	}
	if r.passwordFile != "" {
		text, err := os.ReadFile(r.passwordFile)
		if err != nil {
			return nil, fmt.Errorf("reading the password for Prometheus: %w", err)
		}
		c.Password = strings.TrimSpace(string(text))
	}
	if r.tokenFile != "" {
		if _, err := os.Stat(r.tokenFile); err != nil {
			return nil, fmt.Errorf("reading the token for Prometheus: %w", err)
		}
	}
	t, err := rest.TransportFor(&c)
	if err != nil {
		return nil, fmt.Errorf("connecting to Prometheus: %w", err)
	}
	return t, nil
}
