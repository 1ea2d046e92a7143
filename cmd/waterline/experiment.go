package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/experiment"
	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// maxSeconds is the longest that one experiment may be asked to measure: a day.
const maxSeconds = 86400

func experimentCommand() *cobra.Command {
	var cfg experiment.Config
	var jsonFile, svgFile string
	cmd := &cobra.Command{
		Use:   "experiment NAME",
		Short: "Measure on this kernel, with real processes, what weights and CPU sets are worth",
		Long:  experimentHelp(),
		Example: `  sudo waterline experiment weights
  sudo waterline experiment preempt --hog --seconds 20 --json preempt.json --svg preempt.svg`,
		ValidArgs: experimentNames(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("name one experiment: %s", strings.Join(experimentNames(), ", "))}
			}
			if _, found := experiment.Find(args[0]); !found {
				return usageError{fmt.Errorf("there is no experiment %q; there are %s", args[0], strings.Join(experimentNames(), ", "))}
			}
			if cfg.Seconds < 0 || cfg.Seconds > maxSeconds {
				return usageError{fmt.Errorf("--seconds %d: write a number from 1 to %d, or 0 for the default", cfg.Seconds, maxSeconds)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e, _ := experiment.Find(args[0])
			return show(cmd, e.Name, jsonFile, svgFile, func(progress func(experiment.Progress)) (experiment.Result, error) {
				cfg.Progress = progress
				return e.Run(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Seconds, "seconds", 0, "how long to measure; for hierarchy each level, for cpuset and burst each mode (default: see above)")
	flags.BoolVar(&cfg.Hog, "hog", false, "let one more pod, annotated 262144, burn all CPUs meanwhile")
	resultFlags(cmd, &jsonFile, &svgFile)
	hostFlags(cmd, &cfg)
	cmd.AddCommand(colocateCommand(), headlineCommand(), suppressCommand(), memoryCommand(), culpritCommand(), transcodeCommand())
	return cmd
}

// resultFlags adds the flags that say where the result goes besides the terminal.
func resultFlags(cmd *cobra.Command, jsonFile, svgFile *string) {
	cmd.Flags().StringVar(jsonFile, "json", "", "write the figures into this file")
	cmd.Flags().StringVar(svgFile, "svg", "", "draw the chart into this file")
}

// hostFlags adds the flags that say where an experiment finds what it needs.
func hostFlags(cmd *cobra.Command, cfg *experiment.Config) {
	cmd.Flags().StringVar(&cfg.AgentPath, "agent", "", "executable of the agent (default: "+experiment.AgentName+" beside this executable, else in PATH)")
	cmd.Flags().StringVar(&cfg.CgroupRoot, "cgroup-root", host.DefaultRoot, "where the cgroup file system is mounted")
}

func experimentNames() []string {
	var names []string
	for _, e := range experiment.All() {
		names = append(names, e.Name)
	}
	return append(names, experiment.ColocateName, experiment.LiveDayName, experiment.SuppressName, experiment.MemoryName, experiment.CulpritName, experiment.TranscodeName)
}

func experimentHelp() string {
	var b strings.Builder
	b.WriteString("Measure on this kernel, with real processes, what weights and CPU sets are worth. It needs root and no cluster: it makes\n" +
		"cgroups of its own, laid out as a kubelet lays them out, runs the real agent and load in them, and removes them again.\n\n" +
		"It takes most of the machine's CPU meanwhile: do not run it where work matters.\n\nExperiments:\n")
	for _, e := range experiment.All() {
		fmt.Fprintf(&b, "  %-10s (%d s) %s\n", e.Name, e.Seconds, e.About)
	}
	b.WriteString("\nThe experiments " + experiment.ColocateName + ", " + experiment.LiveDayName + ", " + experiment.SuppressName + " and " + experiment.CulpritName + " take a quarter of an hour and more, " + experiment.MemoryName + " needs cgroup v2,\n" +
		"and " + experiment.TranscodeName + " a cluster. They have options of their own: \"waterline experiment " + experiment.ColocateName + " --help\".")
	return b.String()
}

// show runs an experiment, shows how far it is, and presents its result.
func show(cmd *cobra.Command, name, jsonFile, svgFile string, run func(func(experiment.Progress)) (experiment.Result, error)) error {
	progress := newProgress(cmd.ErrOrStderr())
	result, err := run(progress.show)
	progress.end()
	if err != nil {
		return fmt.Errorf("experiment %s: %w", name, err)
	}
	return present(cmd.OutOrStdout(), &result, jsonFile, svgFile)
}

// present writes the files that were asked for, and prints the result.
func present(w io.Writer, r *experiment.Result, jsonFile, svgFile string) error {
	if jsonFile != "" {
		text, err := r.JSON(builtFrom())
		if err != nil {
			return err
		}
		if err := os.WriteFile(jsonFile, text, 0o644); err != nil {
			return fmt.Errorf("writing the figures: %w", err)
		}
	}
	if svgFile != "" {
		if err := os.WriteFile(svgFile, []byte(chart.Standalone(r.Chart)), 0o644); err != nil {
			return fmt.Errorf("writing the chart: %w", err)
		}
	}
	printResult(w, r)
	return nil
}

func printResult(w io.Writer, r *experiment.Result) {
	fmt.Fprintf(w, "%s: %s\n\n%s\n%s\n", r.Name, r.About, r.Table, r.Headline)
	for _, note := range r.Notes {
		fmt.Fprintln(w, note)
	}
}

// helperCommand is how experiments start the load and the outside reader; see experiment.RunHelper.
func helperCommand() *cobra.Command {
	return &cobra.Command{
		Use:                experiment.HelperCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return experiment.RunHelper(args) },
	}
}

// progress shows how far an experiment is: in one line that changes on a terminal, in one line a step elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	step     string
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: isTerminal(w)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (p *progress) show(now experiment.Progress) {
	const clear = "\r\x1b[K"
	step := now.Experiment + ": " + now.Doing
	if !p.terminal {
		if step != p.step && now.Total > 0 {
			fmt.Fprintf(p.w, "%s, %.0f s\n", step, now.Total.Seconds())
		} else if step != p.step {
			fmt.Fprintln(p.w, step)
		}
		p.step = step
		return
	}
	fmt.Fprint(p.w, clear, step)
	if now.Total > 0 {
		const cells = 20
		done := min(int(cells*now.Elapsed/max(now.Total, 1)), cells)
		fmt.Fprintf(p.w, "  %s%s  %2.0f / %.0f s", strings.Repeat("█", done), strings.Repeat("░", cells-done),
			now.Elapsed.Round(time.Second).Seconds(), now.Total.Seconds())
	}
	if now.Now != "" {
		fmt.Fprint(p.w, "  ", now.Now)
	}
}

// end clears the line that changes.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
