package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

const keepOne = "keep one of the two on a node: take the node out of its DaemonSet, or label the node " +
	v1alpha1.LabelOptOut

// rivals are daemons that set the same files, by the name of their program, with what to do. Two at once fight.
var rivals = map[string]string{
	"cpu-share-syncer": "remove it: Waterline honours the same annotation (docs/migrate-cpu-share-syncer.md)",
	"koordlet":         keepOne,
	"crane-agent":      keepOne,
	"katalyst-agent":   keepOne,
	"vc-agent":         keepOne,
	"volcano-agent":    keepOne,
	"rubik":            keepOne,
}

func doctorCommand() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check a node's requirements and find other cgroup writers; with cluster: check the cluster",
		Long: `Check that this node meets Waterline's requirements: kernel, kubelet, container runtime and other agents. Watch the
cgroups of its pods for other writers. Each finding has what to do about it.

Run it on the node, as root. A kubelet writes every 60 seconds; --seconds 70 observes that as well. To check the
cluster instead, from anywhere and without root, run "waterline doctor cluster".

The exit code is 1 if something is bad. Notes do not count.`,
		Args: refusing("doctor takes no argument but cluster, and got %q"),
	}
	check := nodeChecks(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		d := doctor{out: c.OutOrStdout(), output: &o}
		if err := check(c.Context(), &d); err != nil {
			return err
		}
		return d.result()
	}
	o.flag(c, formWide)
	c.AddCommand(doctorClusterCommand())
	return c
}

// doctor collects findings. As text they are printed at once, else at the end.
type doctor struct {
	out      io.Writer
	output   *output
	findings []finding
	failed   int // findings that are bad
}

type finding struct {
	Level string `json:"level"` // ok, note or BAD
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

const levelBad = "BAD"

func (d *doctor) ok(format string, args ...any) { d.add("ok", "", format, args...) }

// note and bad add something that may be as it is, and something that should not. The fix is what to do; "": nothing.
func (d *doctor) note(fix, format string, args ...any) { d.add("note", fix, format, args...) }
func (d *doctor) bad(fix, format string, args ...any)  { d.add(levelBad, fix, format, args...) }

func (d *doctor) add(level, fix, format string, args ...any) {
	f := finding{level, fmt.Sprintf(format, args...), fix}
	d.findings = append(d.findings, f)
	if level == levelBad {
		d.failed++
	}
	if d.output.data() || d.output.wide() {
		return
	}
	fmt.Fprintf(d.out, "%-5s %s\n", f.Level, f.What)
	if f.Fix != "" {
		fmt.Fprintf(d.out, "      what to do: %s\n", f.Fix)
	}
}

// result prints findings that were not printed yet, and returns an error if one is bad.
func (d *doctor) result() error {
	if d.output.data() || d.output.wide() {
		err := d.output.print(d.out, d.findings, func() error {
			return table(d.out, "LEVEL\tFINDING\tWHAT TO DO", d.findings, func(f *finding) string {
				return fmt.Sprintf("%s\t%s\t%s", f.Level, f.What, orDash(f.Fix))
			})
		})
		if err != nil {
			return err
		}
	}
	if d.failed > 0 {
		return fmt.Errorf("%d of the checks failed", d.failed)
	}
	return nil
}
