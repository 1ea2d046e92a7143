package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/decide/cluster/yarncheck"
	"github.com/waterline-io/waterline/internal/yarn"
)

func yarnCheckCommand() *cobra.Command {
	y := yarnFacts{}
	var floor, sparkDefaults, mapredSite, workerSite string
	var o output
	var ignore []string
	c := &cobra.Command{
		Use:   "check --rm ADDRESS[,ADDRESS] --label LABEL",
		Short: "Find what would go wrong if elastic NodeManagers joined a YARN cluster",
		Long: `Find what would go wrong if elastic NodeManagers joined a YARN cluster: the workers of a WorkerPool, which have a
node label, and come and go with the slack of their machines. It reads queues, labels, nodes and settings of the active
ResourceManager, and changes nothing.

A finding is an error if the pool would not work or jobs would be lost, a warning if something goes wrong under
circumstances, and a note if nothing is wrong. Each has a code, which docs/yarn-check.md explains, and a fix.

The exit code is 0 if everything was checked and there is neither an error nor a warning, and 1 otherwise.`,
		Example: `  waterline yarn check --rm http://rm1:8088,http://rm2:8088 --label elastic
  waterline yarn check --rm http://rm1:8088 --label elastic --floor 2048MiB,2vcores --ignore WebPortOpen -o json`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			switch {
			case len(args) > 0:
				err = fmt.Errorf("check takes no arguments, but got %q; a ResourceManager is named with --rm", args[0])
			case len(y.addresses) == 0:
				err = errors.New("name the ResourceManagers with --rm, such as --rm http://rm1:8088,http://rm2:8088")
			case y.label == "":
				err = errors.New("name the node label of the pool with --label, such as --label elastic")
			}
			for _, code := range ignore {
				if err == nil && !slices.Contains(yarncheck.Codes(), yarncheck.Code(code)) {
					err = fmt.Errorf("--ignore %q: there is no such finding; there are %s", code, codes(yarncheck.Codes()))
				}
			}
			if err == nil {
				y.floor, err = parseSize(floor)
			}
			if err == nil {
				_, err = y.client(y.addresses...)
			}
			if err == nil && sparkDefaults != "" {
				y.spark, err = readSparkDefaults(sparkDefaults)
			}
			if err == nil && mapredSite != "" {
				y.mapReduce, err = readSite("mapred-site", mapredSite)
			}
			if err == nil && workerSite != "" {
				y.workers, err = readSite("worker-site", workerSite)
			}
			return usageError(err)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			// Each request and each look-up of a name has a bound of its own.
			ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
			defer cancel()
			report := yarncheck.Check(y.read(ctx))
			report.Findings = slices.DeleteFunc(report.Findings, func(f yarncheck.Finding) bool {
				return slices.Contains(ignore, string(f.Code))
			})
			if err := o.print(c.OutOrStdout(), report, func() error { return printYARN(c.OutOrStdout(), &report) }); err != nil {
				return err
			}
			return verdict(&report)
		},
	}
	c.Flags().StringSliceVar(&y.addresses, "rm", nil, "base addresses of the web services of all ResourceManagers")
	c.Flags().StringVar(&y.label, "label", "", "node label of the pool")
	c.Flags().StringVar(&floor, "floor", "1024MiB,1vcores", "the least that a worker of the pool offers to YARN")
	c.Flags().StringVar(&y.user, "user", "",
		"user as whom the pool will ask, and as whom this command asks, where Hadoop's authentication is simple")
	c.Flags().StringVar(&y.principal, "principal", "", "Kerberos principal as which this command asks; it needs --keytab")
	c.Flags().StringVar(&y.keytab, "keytab", "", "file with the principal's key")
	c.Flags().StringVar(&y.krb5, "krb5-conf", "/etc/krb5.conf", "Kerberos configuration file")
	c.Flags().StringVar(&y.ca, "ca", "", "PEM file of the authorities that may sign certificates of ResourceManagers")
	c.Flags().StringVar(&sparkDefaults, "spark-defaults", "", "spark-defaults.conf of Spark's clients, to check it too")
	c.Flags().StringVar(&mapredSite, "mapred-site", "", "mapred-site.xml of MapReduce's clients, to check it too")
	c.Flags().StringVar(&workerSite, "worker-site", "",
		"yarn-site.xml of the pool's workers, to check their logs, services and executor")
	c.Flags().StringSliceVar(&ignore, "ignore", nil, "codes of findings to leave out")
	o.flag(c)
	return c
}

// parseSize reads a size such as 1024MiB,1vcores.
func parseSize(text string) (yarncheck.Size, error) {
	memory, cpu, _ := strings.Cut(text, ",")
	memory, inMiB := strings.CutSuffix(memory, "MiB")
	cpu, inVCores := strings.CutSuffix(cpu, "vcores")
	if !inVCores {
		cpu, inVCores = strings.CutSuffix(cpu, "vcore")
	}
	m, err := strconv.ParseInt(memory, 10, 32)
	v, err2 := strconv.ParseInt(cpu, 10, 32)
	if errors.Join(err, err2) != nil || !inMiB || !inVCores || m < 1 || v < 1 {
		return yarncheck.Size{}, fmt.Errorf("--floor %q: write memory and CPU, such as 1024MiB,1vcores", text)
	}
	return yarncheck.Size{MemoryMiB: m, VCores: v}, nil
}

// verdict returns an error that counts what is wrong, and what was not checked.
func verdict(r *yarncheck.Report) error {
	bad, warnings := r.Bad()
	var parts []string
	if bad > 0 {
		parts = append(parts, count(bad, "error"))
	}
	if warnings > 0 {
		parts = append(parts, count(warnings, "warning"))
	}
	skipped := 0
	for _, u := range r.Unchecked {
		skipped += len(u.Codes)
	}
	if skipped > 0 {
		parts = append(parts, count(skipped, "finding")+" not checked")
	}
	if len(parts) > 0 {
		return errors.New(strings.Join(parts, ", "))
	}
	return nil
}

func printYARN(out io.Writer, r *yarncheck.Report) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, m := range r.Managers {
		if m.State == "" {
			fmt.Fprintf(t, "%s\tno answer\t%s\n", m.Address, m.Problem)
		} else {
			fmt.Fprintf(t, "%s\t%s\tHadoop %s\n", m.Address, m.State, m.Version)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Partitions) > 0 {
		fmt.Fprintln(t, "\nPARTITION\tNODES\tMEMORY\tVCORES")
	}
	for _, p := range r.Partitions {
		fmt.Fprintf(t, "%s\t%d\t%d MiB\t%d\n", cmp.Or(p.Label, "(default)"), p.Nodes, p.Total.MemoryMiB, p.Total.VCores)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range r.Findings {
		printFinding(out, &f)
	}
	for _, u := range r.Unchecked {
		fmt.Fprintf(out, "\nnot checked  %s\n  because  %s\n", codes(u.Codes), u.Why)
	}
	if bad, warnings := r.Bad(); bad+warnings+len(r.Unchecked) == 0 {
		fmt.Fprintf(out, "\nEverything was checked, and nothing is wrong.\n")
	}
	return nil
}

func printFinding(out io.Writer, f *yarncheck.Finding) {
	fmt.Fprintf(out, "\n%s\n", strings.TrimSpace(fmt.Sprintf("%-7s  %s  %s", f.Severity, f.Code, first(f.Where, 5))))
	fmt.Fprintf(out, "  what   %s\n", f.What)
	switch {
	case f.Property != "":
		fmt.Fprintf(out, "  found  %s = %s\n", f.Property, visible(f.Value))
	case f.Value != "":
		fmt.Fprintf(out, "  found  %s\n", f.Value)
	}
	fmt.Fprintf(out, "  why    %s\n", f.Why)
	if f.Fix.Property != "" {
		fmt.Fprintf(out, "  set    %s = %s\n", f.Fix.Property, visible(f.Fix.Value))
	}
	if f.Fix.Do != "" {
		fmt.Fprintf(out, "  do     %s\n", f.Fix.Do)
	}
}

// visible quotes a value that nobody would see.
func visible(value string) string {
	if strings.TrimSpace(value) == "" {
		return strconv.Quote(value)
	}
	return value
}

func codes(all []yarncheck.Code) string {
	return strings.Join(namesOf(all, func(c *yarncheck.Code) string { return string(*c) }), ", ")
}

func (y *yarnFacts) client(addresses ...string) (*yarn.RM, error) {
	o := yarn.HTTPOptions{Auth: yarn.Auth{User: y.user}}
	var errs []error
	read := func(flag, path string) []byte {
		content, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
		return content
	}
	if y.ca != "" {
		o.CA = read("ca", y.ca)
	}
	if y.principal != "" {
		o.Auth.Kerberos = &yarn.Kerberos{
			Principal: y.principal, Keytab: read("keytab", y.keytab), Config: read("krb5-conf", y.krb5),
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return yarn.NewRM(addresses, o)
}
