package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

// rounds are recorded rounds, oldest first.
type rounds = iter.Seq2[node.Round, error]

// record is what a journal is looked through for.
type record struct {
	namespace, name string // of a pod; "": the node
	at              time.Time

	Read      int       `json:"rounds"`
	From      time.Time `json:"from,omitzero"`
	To        time.Time `json:"to,omitzero"`
	Gone      time.Time `json:"gone,omitzero"` // when the pod was not on the node any more
	Requested string    `json:"evictionRequested,omitempty"`
	Unusable  []string  `json:"unusable,omitempty"`
	Lost      int       `json:"lost,omitempty"` // further lines, which go on from those

	chosen *node.Round // the last round that has the pod; for a node the last one
}

// read looks through rounds, up to the time.
func (r *record) read(all rounds) {
	asked := "" // UID of the pod whose eviction was requested last
	for round, err := range all {
		if err != nil {
			if errors.Is(err, journal.ErrNoBase) {
				r.Lost++
			} else {
				r.Unusable = append(r.Unusable, err.Error())
			}
			continue
		}
		now := round.Node.Now
		if !r.at.IsZero() && now.After(r.at) {
			continue
		}
		if r.Read++; r.From.IsZero() {
			r.From = now
		}
		r.To = now
		switch {
		case r.name == "" || r.has(&round):
			r.chosen, r.Gone = &round, time.Time{}
		case r.chosen != nil && r.Gone.IsZero():
			r.Gone = now
		}
		if e := round.Plan.Evict; e != nil && e.Request != nil && e.Request.Namespace == r.namespace &&
			e.Request.Name == r.name && e.Request.UID != asked {
			asked = e.Request.UID
			r.Requested = fmt.Sprintf("at %s its node requested its eviction: %s", clock(now), e.Request.Reason)
			if e.Request.Withheld != nil {
				r.Requested = fmt.Sprintf("at %s its node would have requested its eviction: %s; it only reported it: %s",
					clock(now), e.Request.Reason, e.Request.Withheld)
			}
		}
	}
}

func (r *record) has(round *node.Round) bool {
	return slices.ContainsFunc(round.Node.Pods, func(p *model.Pod) bool {
		return p.Namespace == r.namespace && p.Name == r.name
	})
}

// none returns an error that says why no round was chosen.
func (r *record) none(where string) error {
	bad := ""
	if text := r.lacks(); text != "" {
		bad = "; " + text
	}
	if r.Read == 0 {
		return fmt.Errorf("%s has no round%s%s", where, before(r.at), bad)
	}
	return fmt.Errorf("%s has %s from %s to %s, and none of them has a pod %s in namespace %s%s", where,
		count(r.Read, "round"), clock(r.From), clock(r.To), r.name, r.namespace, bad)
}

// print says what the journal has besides the round that is explained.
func (r *record) print(out io.Writer) {
	fmt.Fprintf(out, "by the round of %s, of %s from %s to %s\n", r.chosen.Node.Now.UTC().Format(time.RFC3339Nano),
		count(r.Read, "recorded round"), clock(r.From), clock(r.To))
	if r.Requested != "" {
		fmt.Fprintln(out, r.Requested)
	}
	if !r.Gone.IsZero() {
		fmt.Fprintf(out, "it is gone from the node since %s\n", clock(r.Gone))
	}
	if text := r.lacks(); text != "" {
		fmt.Fprintf(out, "of the journal, %s\n", text)
	}
}

// lacks says which lines could not be used; "": all were.
func (r *record) lacks() string {
	var all []string
	if n := len(r.Unusable); n > 0 {
		all = append(all, fmt.Sprintf("%s cannot be used, the first: %s", count(n, "line"), r.Unusable[0]))
	}
	if r.Lost > 0 {
		all = append(all, fmt.Sprintf("%s cannot be read without those before", count(r.Lost, "line")))
	}
	return strings.Join(all, "; ")
}

// byJournal explains a pod or a node by recorded rounds alone.
func (e *explainer) byJournal(kind, name string) (answer, error) {
	found, err := journal.Find(e.journal)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("%s has no journal; name the agent's run directory, a copy of it, or a file", e.journal)
	case kind == "node" && len(found) > 1:
		return nil, usageError(fmt.Errorf("%s has %d journals: name one of them, such as %s", e.journal, len(found),
			found[0][0]))
	}
	var best *record
	for _, files := range found {
		r := e.record(kind, name)
		r.read(journal.ReadFiles(files...))
		if best == nil || r.chosen != nil && (best.chosen == nil || r.chosen.Node.Now.After(best.chosen.Node.Now)) {
			best = r
		}
	}
	switch {
	case best.chosen == nil:
		return nil, best.none(e.journal)
	case kind == "node":
		return &nodeAnswer{NodeExplanation: serve.RecordedNode(best.chosen), Journal: best}, nil
	}
	x, _ := serve.RecordedPod(best.chosen, best.namespace, best.name)
	return &podAnswer{Explanation: &x, Journal: best}, nil
}

func (e *explainer) record(kind, name string) *record {
	if kind == "node" {
		return &record{at: e.at.Time}
	}
	return &record{namespace: e.cluster.in(), name: name, at: e.at.Time}
}

// fromAgent looks through the journal that an agent serves. The error also says why no round was chosen.
func (r *record) fromAgent(ctx context.Context, address string) error {
	const where = "the agent's journal"
	body, err := openAgent(ctx, address, "/journal", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	if r.read(journal.ReadFrom(body, where)); r.chosen == nil {
		return r.none(where)
	}
	return nil
}
