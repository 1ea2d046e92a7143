package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/journal"
)

func replayCommand() *cobra.Command {
	var at moment
	var o output
	var details int
	c := &cobra.Command{
		Use:   "replay JOURNAL...",
		Short: "Decide recorded rounds again and compare the plans: which decisions would this version take differently?",
		Long: `Decide the rounds of journals again, each from its recorded input, and compare the plans with the recorded ones. Run
it with a new version before an upgrade.

JOURNAL is the agent's run directory, a copy of it, a directory of such copies, or a file. The first rounds that differ
are shown with each field that differs, then how often each field differs. Lines that cannot be used are named and
passed over. With --at only the round of each journal is replayed that was in force at that time.

Exit codes: 0 all plans agree; 1 at least one differs; 2 nothing could be compared.`,
		Example: `  waterline replay /run/waterline
  waterline replay journals/ --details 3
  waterline replay /run/waterline --at 2026-11-23T14:05:00Z`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(errors.New("name the journal's directory, such as /run/waterline"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			report := replayReport{Version: version}
			for _, path := range args {
				found, err := journal.Find(path)
				if err != nil {
					return exitError{err, exitUnusable}
				}
				for _, files := range found {
					report.Journals = append(report.Journals, replayJournal(files, at.Time, details))
				}
			}
			if err := report.usable(args, at.Time); err != nil {
				return exitError{err, exitUnusable}
			}
			err := o.print(c.OutOrStdout(), &report, func() error { return report.text(c.OutOrStdout()) })
			if differ, rounds := report.sums(); err == nil && differ > 0 {
				err = exitError{fmt.Errorf("%d of %d rounds are decided differently", differ, rounds), exitFailed}
			}
			return err
		},
	}
	c.Flags().Var(&at, "at", "replay only the round in force at this time (RFC 3339)")
	c.Flags().IntVar(&details, "details", 10, "how many of the differing rounds of a journal to show field by field")
	o.flag(c)
	return c
}

// moment is a flag's time.
type moment struct{ time.Time }

// String returns the time, "" if there is none.
func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339)
}

// Type returns what the flag's help shows as its value.
func (m *moment) Type() string { return "TIME" }

// Set reads the time.
func (m *moment) Set(text string) (err error) {
	if m.Time, err = time.Parse(time.RFC3339, text); err != nil {
		return errors.New("write a time such as 2026-11-23T14:05:00Z")
	}
	return nil
}

// replayReport compares recorded rounds with what is decided from their input now.
type replayReport struct {
	Version  string          `json:"version"` // of this command, which replayed the rounds
	Journals []replayedFiles `json:"journals"`
}

// replayedFiles is the comparison of one journal.
type replayedFiles struct {
	Files    []string       `json:"files"`
	From     time.Time      `json:"from,omitzero"` // of the first round that was compared
	To       time.Time      `json:"to,omitzero"`   // of the last one
	Rounds   int            `json:"rounds"`
	Differ   int            `json:"differ"`             // rounds that are decided differently
	Fields   map[string]int `json:"fields,omitempty"`   // how many rounds differ in a field
	Details  []roundDiffers `json:"details,omitempty"`  // the first rounds that differ
	Unusable []string       `json:"unusable,omitempty"` // lines that cannot be used, and why
	Lost     int            `json:"lost,omitempty"`     // further lines, which go on from those
}

// roundDiffers is a round that is decided differently.
type roundDiffers struct {
	At     time.Time        `json:"at"`
	Fields []replayedFields `json:"fields"`
}

// replayedFields are differing fields of one thing, such as a file.
type replayedFields struct {
	Of     string               `json:"of"` // such as "cpu.shares of pod shop/web-0"; "": the plan
	Fields []journal.Difference `json:"fields"`
}

// replayJournal replays the rounds in the files of one journal; if a time is given, only the one in force then.
func replayJournal(files []string, at time.Time, details int) replayedFiles {
	r := replayedFiles{Files: files, Fields: map[string]int{}}
	var chosen *node.Round
	for round, err := range journal.ReadFiles(files...) {
		switch {
		case errors.Is(err, journal.ErrNoBase):
			r.Lost++
		case err != nil:
			r.Unusable = append(r.Unusable, err.Error())
		case at.IsZero():
			r.compare(&round, details)
		case !round.Node.Now.After(at):
			chosen = &round
		}
	}
	if chosen != nil {
		r.compare(chosen, details)
	}
	return r
}

// compare replays a round.
func (r *replayedFiles) compare(round *node.Round, details int) {
	if r.Rounds++; r.Rounds == 1 {
		r.From = round.Node.Now
	}
	r.To = round.Node.Now
	differences, err := journal.Replay(round)
	if err != nil {
		differences = []journal.Difference{{Field: journal.WholePlan, Replayed: err.Error()}}
	}
	if len(differences) == 0 {
		return
	}
	r.Differ++
	kinds := map[string]bool{}
	shown := roundDiffers{At: round.Node.Now}
	pods := podNames(round)
	for _, d := range differences {
		of, field := locate(d.Field, pods)
		kinds[kind(d.Field)] = true
		d.Field = field
		if last := len(shown.Fields) - 1; last >= 0 && of != "" && shown.Fields[last].Of == of {
			shown.Fields[last].Fields = append(shown.Fields[last].Fields, d)
			continue
		}
		shown.Fields = append(shown.Fields, replayedFields{Of: of, Fields: []journal.Difference{d}})
	}
	for k := range kinds {
		r.Fields[k]++
	}
	if len(r.Details) < details {
		r.Details = append(r.Details, shown)
	}
}

// podNames returns the names of a round's pods, by UID and by the directory of their cgroup.
func podNames(round *node.Round) map[string]string {
	names := map[string]string{}
	for _, p := range round.Node.Pods {
		name := p.Namespace + "/" + p.Name
		names[p.UID], names[p.APIUID] = name, name
		if group, found := round.Node.Tree.Pods[p.UID]; found {
			names[group.Dir] = name
		}
	}
	delete(names, "")
	return names
}

// inPlan matches a file of a plan in the path of a field: its directory, its setting, and what is left of the path.
var inPlan = regexp.MustCompile(`^Settings\[(.*) (\S+)\]\.?(.*)$`)

// inBrackets matches what an element of a list is called.
var inBrackets = regexp.MustCompile(`\[[^\]]*\]`)

// locate splits the path of a field into the thing that it belongs to, as people call it, and the field of that.
func locate(path string, pods map[string]string) (of, field string) {
	if m := inPlan.FindStringSubmatch(path); m != nil {
		dir, what := m[1], "file "+m[1]
		for at := dir; at != ""; at = at[:max(strings.LastIndexByte(at, '/'), 0)] {
			if name := pods[at]; name != "" {
				what = "pod " + name + ", " + dir
				break
			}
		}
		return m[2] + " of " + what, m[3]
	}
	return "", inBrackets.ReplaceAllStringFunc(path, func(uid string) string {
		uid, container, _ := strings.Cut(uid[1:len(uid)-1], "/")
		if name := pods[uid]; name != "" {
			uid = name
		}
		return "[" + strings.TrimSuffix(uid+"/"+container, "/") + "]"
	})
}

// kind returns what fields of all rounds, pods and directories have in common.
func kind(path string) string {
	if m := inPlan.FindStringSubmatch(path); m != nil {
		return m[2] + ": " + m[3]
	}
	return inBrackets.ReplaceAllString(path, "[]")
}

// sums returns how many rounds differ, of how many.
func (r *replayReport) sums() (differ, rounds int) {
	for i := range r.Journals {
		differ, rounds = differ+r.Journals[i].Differ, rounds+r.Journals[i].Rounds
	}
	return differ, rounds
}

// usable returns an error if there was nothing to compare.
func (r *replayReport) usable(paths []string, at time.Time) error {
	_, rounds := r.sums()
	if rounds > 0 {
		return nil
	}
	var unusable []string
	for i := range r.Journals {
		unusable = append(unusable, r.Journals[i].Unusable...)
	}
	all := strings.Join(paths, ", ")
	switch {
	case len(unusable) > 0:
		return fmt.Errorf("%s has no round that can be used%s; the first of %s: %s", all, before(at),
			count(len(unusable), "bad line"), unusable[0])
	case !at.IsZero():
		return fmt.Errorf("%s has no round%s", all, before(at))
	}
	return fmt.Errorf("%s has no rounds; name the agent's run directory, or a directory of copies of it", all)
}

func before(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " at or before " + at.Format(time.RFC3339)
}

// text prints the report for people.
func (r *replayReport) text(out io.Writer) error {
	for i := range r.Journals {
		if err := r.Journals[i].text(out, len(r.Journals) > 1); err != nil {
			return err
		}
	}
	if differ, rounds := r.sums(); differ == 0 {
		_, err := fmt.Fprintf(out, "%s replayed, all plans agree\n", count(rounds, "round"))
		return err
	}
	return nil
}

// maxUnusable is how many unusable lines are named.
const maxUnusable = 5

func (r *replayedFiles) text(out io.Writer, named bool) error {
	if named {
		name := r.Files[0]
		if len(r.Files) > 1 {
			name = filepath.Dir(name)
		}
		fmt.Fprintf(out, "%s: %s", name, count(r.Rounds, "round"))
		if r.Rounds > 0 {
			fmt.Fprintf(out, " from %s to %s, %d decided differently", clock(r.From), clock(r.To), r.Differ)
		}
		fmt.Fprintln(out)
	}
	for i, line := range r.Unusable {
		if i == maxUnusable {
			fmt.Fprintf(out, "and %s that cannot be used\n", count(len(r.Unusable)-i, "more line"))
			break
		}
		fmt.Fprintf(out, "not used: %s\n", line)
	}
	if r.Lost > 0 {
		fmt.Fprintf(out, "not used: %s after such lines, which have only what changed\n", count(r.Lost, "line"))
	}
	for _, d := range r.Details {
		fmt.Fprintf(out, "round of %s\n", d.At.Format(time.RFC3339Nano))
		for _, f := range d.Fields {
			f.text(out)
		}
	}
	if r.Differ == 0 {
		return nil
	}
	if hidden := r.Differ - len(r.Details); hidden > 0 {
		fmt.Fprintf(out, "%s not shown; --details shows more\n", count(hidden, "differing round"))
	}
	fields := slices.SortedFunc(maps.Keys(r.Fields), func(a, b string) int {
		return cmp.Or(r.Fields[b]-r.Fields[a], strings.Compare(a, b))
	})
	return table(out, "ROUNDS\tDIFFER IN", fields, func(field *string) string {
		return fmt.Sprintf("%d\t%s", r.Fields[*field], *field)
	})
}

func (f *replayedFields) text(out io.Writer) {
	indent := "  "
	if f.Of != "" {
		fmt.Fprintf(out, "  %s\n", f.Of)
		indent = "    "
	}
	for _, d := range f.Fields {
		if len(f.Fields) > 1 && blank(d.Recorded) && blank(d.Replayed) {
			continue // of a file that only one of the plans has
		}
		fmt.Fprintf(out, "%s%s\n%s  recorded  %s\n%s  replayed  %s\n", indent, d.Field, indent,
			cmp.Or(d.Recorded, "nothing"), indent, cmp.Or(d.Replayed, "nothing"))
	}
}

// blank reports whether a field says nothing.
func blank(value string) bool { return value == "" || value == `""` || value == "false" }
