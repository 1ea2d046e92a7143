package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/journal"
)

func replayCommand() *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   "replay JOURNAL",
		Short: "Decide recorded rounds again and compare the plans",
		Long: `Decide the rounds of a journal again, each from its recorded input, and compare the plans with the recorded ones.

JOURNAL is the agent's run directory, or a copy of it. With --at only the round is replayed that was in force at that
time. The exit code is 0 if all plans agree. It is 1 if one differs: then each field that differs is printed.`,
		Example: "  waterline replay /run/waterline\n  waterline replay /run/waterline --at 2026-11-23T14:05:00Z",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("name the journal's directory, such as /run/waterline")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			r := replay{cmd: c}
			if at != "" {
				var err error
				if r.at, err = time.Parse(time.RFC3339, at); err != nil {
					return usageError{fmt.Errorf("--at %q: write a time such as 2026-11-23T14:05:00Z", at)}
				}
			}
			return r.run(args[0])
		},
	}
	c.Flags().StringVar(&at, "at", "", "replay only the round in force at this time (RFC 3339)")
	return c
}

// replay compares recorded rounds with what is decided from their input now.
type replay struct {
	cmd *cobra.Command
	at  time.Time // zero: all rounds

	rounds, differ, unreadable int
}

func (r *replay) run(path string) error {
	if info, err := os.Stat(path); err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	} else if !info.IsDir() {
		path = filepath.Dir(path) // of one of the journal's files
	}
	var chosen *node.Round
	for round, err := range journal.Read(path) {
		switch {
		case err != nil:
			r.unreadable++
			fmt.Fprintln(r.cmd.ErrOrStderr(), "waterline:", err)
		case r.at.IsZero():
			if err := r.compare(&round); err != nil {
				return err
			}
		case !round.Node.Now.After(r.at):
			chosen = &round
		}
	}
	if chosen != nil {
		if err := r.compare(chosen); err != nil {
			return err
		}
	}
	return r.summary(path)
}

func (r *replay) compare(round *node.Round) error {
	r.rounds++
	differences, err := journal.Replay(round)
	if err != nil {
		return fmt.Errorf("replaying the round of %s: %w", round.Node.Now.Format(time.RFC3339Nano), err)
	}
	if len(differences) == 0 {
		return nil
	}
	r.differ++
	out := r.cmd.OutOrStdout()
	fmt.Fprintf(out, "round of %s\n", round.Node.Now.Format(time.RFC3339Nano))
	for _, d := range differences {
		fmt.Fprintf(out, "  %s\n    recorded  %s\n    replayed  %s\n", d.Field, orNothing(d.Recorded), orNothing(d.Replayed))
	}
	return nil
}

func (r *replay) summary(path string) error {
	out := r.cmd.OutOrStdout()
	if r.unreadable > 0 {
		fmt.Fprintf(out, "%d lines of the journal could not be read\n", r.unreadable)
	}
	switch {
	case r.rounds == 0 && !r.at.IsZero():
		return fmt.Errorf("%s has no round at or before %s", path, r.at.Format(time.RFC3339))
	case r.rounds == 0:
		return fmt.Errorf("%s has no rounds; name the agent's run directory", path)
	case r.differ > 0:
		return fmt.Errorf("%d of %d rounds are decided differently", r.differ, r.rounds)
	}
	fmt.Fprintf(out, "%d rounds replayed, all plans agree\n", r.rounds)
	return nil
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}
