package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
)

// The orders in which top shows nodes and pods, each with the key that chooses it.
var (
	nodeOrders = []order[nodeStatus]{
		{"name", 'n', func(a, b *nodeStatus) int { return strings.Compare(a.Name, b.Name) }},
		{"online", 'o', func(a, b *nodeStatus) int { return b.CPU.Online.Cmp(a.CPU.Online) }},
		{"batch", 'b', func(a, b *nodeStatus) int { return b.CPU.Batch.Cmp(a.CPU.Batch) }},
		{"offered", 'f', func(a, b *nodeStatus) int { return sum(&b.CPU.Offer).Cmp(*sum(&a.CPU.Offer)) }},
		{"sold", 's', func(a, b *nodeStatus) int { return sum(&b.CPU.Bound).Cmp(*sum(&a.CPU.Bound)) }},
		{"memory", 'm', func(a, b *nodeStatus) int { return b.Memory.Online.Cmp(a.Memory.Online) }},
	}
	podOrders = []order[serve.PodUsage]{
		{"cpu", 'c', func(a, b *serve.PodUsage) int { return cmp.Compare(b.CPU, a.CPU) }},
		{"memory", 'm', func(a, b *serve.PodUsage) int { return cmp.Compare(b.Memory, a.Memory) }},
		{"wait", 'w', func(a, b *serve.PodUsage) int { return cmp.Compare(b.Wait, a.Wait) }},
		{"name", 'n', func(a, b *serve.PodUsage) int {
			return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		}},
	}
)

type order[T any] struct {
	name    string
	key     byte
	compare func(a, b *T) int
}

func orderNames[T any](orders []order[T]) []string {
	return namesOf(orders, func(o *order[T]) string { return o.name })
}

// sorted sorts rows by the order of a name, and returns false if there is none.
func sorted[T any](rows []T, orders []order[T], name string) bool {
	i := slices.IndexFunc(orders, func(o order[T]) bool { return o.name == name })
	if i >= 0 {
		slices.SortStableFunc(rows, func(a, b T) int { return orders[i].compare(&a, &b) })
	}
	return i >= 0
}

type top struct {
	cluster reach
	address string
	sort    string
	once    bool
	output  output
}

func topCommand() *cobra.Command {
	var t top
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch nodes, or with pods the pods of a node, in a terminal",
		Long: `Watch the nodes: how much of their CPU online pods and batch use, batch may use, and is offered and sold. The
figures are those of the NodeReports, which agents write when something changes. With pods, watch the pods of a node, as
its agent measures them each second.

On a terminal the picture is refreshed each second, less often in a large cluster; q ends it, and the keys in the last
line sort. Elsewhere, and with --once or another output than text, it is shown once.`,
		Example: "  waterline top\n  waterline top --sort sold --once\n  waterline top pods worker-3",
		Args:    noArguments,
		RunE: t.cluster.connected(func(c *cobra.Command, a *apis) error {
			return watch(c, &t, nodeOrders, func(ctx context.Context) ([]nodeStatus, string, error) {
				r, err := readInventory(ctx, a)
				if err != nil {
					return nil, "", err
				}
				s := r.status(time.Now())
				return s.Each, s.headline(), nil
			}, func(out io.Writer, nodes []nodeStatus) error {
				return topNodes(out, nodes, t.output.wide(), time.Now())
			})
		}),
	}
	t.flags(c, orderNames(nodeOrders))
	c.AddCommand(topPodsCommand())
	return c
}

func topPodsCommand() *cobra.Command {
	var t top
	c := &cobra.Command{
		Use:   "pods [NODE]",
		Short: "Watch the pods of a node",
		Long: `Watch the pods of a node, as its agent measures them each second: CPU and memory in use, the CPU request (of batch CPU
for a batch pod), the weight that Waterline set, the CPU that a limited batch pod may use, and how much of the time some
task of the pod waited for a CPU or its quota throttled it.`,
		Example: `  waterline top pods worker-3 --sort wait
  waterline top pods --agent 127.0.0.1:9465               (without a cluster)`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return usageError(fmt.Errorf("name one node, not %d", len(args)))
			case len(args) == 1 && t.address != "":
				return usageError(fmt.Errorf("use either --agent or a node's name, not both: %q", args[0]))
			}
			return nil
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return t.cluster.completion(nodeNames)(c, args, "")
		},
		RunE: func(c *cobra.Command, args []string) error {
			address, node, stop, err := t.cluster.agent(c.Context(), t.address, strings.Join(args, ""), "", "")
			if err != nil {
				return err
			}
			defer stop()
			return watch(c, &t, podOrders, func(ctx context.Context) ([]serve.PodUsage, string, error) {
				var pods []serve.PodUsage
				var n serve.NodeExplanation
				err := errors.Join(getFromAgent(ctx, address, "/pods", nil, &pods),
					getFromAgent(ctx, address, "/node", nil, &n))
				return pods, nodeHeadline(node, &n), err
			}, func(out io.Writer, pods []serve.PodUsage) error { return topPods(out, pods, t.output.wide()) })
		},
	}
	t.flags(c, orderNames(podOrders))
	c.Flags().StringVar(&t.address, "agent", "", agentUsage)
	return c
}

// flags adds the flags of top, and the check of the order to that of the arguments.
func (t *top) flags(c *cobra.Command, orders []string) {
	t.cluster.flags(c)
	c.Flags().StringVar(&t.sort, "sort", orders[0], "sort by "+either(orders))
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(orders, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().BoolVar(&t.once, "once", false, "show it once")
	t.output.flag(c, formWide)
	args := c.Args
	c.Args = func(c *cobra.Command, given []string) error {
		if !slices.Contains(orders, t.sort) {
			return usageError(fmt.Errorf("--sort %q: write %s", t.sort, either(orders)))
		}
		return args(c, given)
	}
}

// watch shows rows until the context or the user ends it. An answer that fails after the first one is shown, and does
// not end it.
func watch[T any](c *cobra.Command, t *top, orders []order[T],
	read func(ctx context.Context) ([]T, string, error), print func(out io.Writer, rows []T) error,
) error {
	ctx := c.Context()
	s := newScreen(c.OutOrStdout())
	picture := func() (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		rows, headline, err := read(ctx)
		if err != nil {
			return "", err
		}
		sorted(rows, orders, t.sort)
		var b bytes.Buffer
		err = t.output.print(&b, rows, func() error {
			fmt.Fprintln(&b, headline)
			return print(&b, rows)
		})
		return b.String(), err
	}
	began := time.Now()
	text, err := picture()
	if err != nil {
		return err
	}
	if t.once || t.output.data() || s.terminal == nil {
		return s.show(strings.TrimSuffix(text, "\n"))
	}
	keys, closed := s.open(ctx)
	defer closed()
	for {
		pause := time.NewTimer(pauseAfter(time.Since(began)))
		if err := s.show(text + footer(orders, t.sort)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		case key := <-keys:
			if key == 'q' {
				return nil
			}
			if i := slices.IndexFunc(orders, func(o order[T]) bool { return o.key == key }); i >= 0 {
				t.sort = orders[i].name
			}
		}
		pause.Stop()
		began = time.Now()
		next, err := picture()
		if ctx.Err() != nil {
			return nil
		}
		if text = next; err != nil {
			text = fmt.Sprintf("no answer: %v\n", err)
		}
	}
}

// footer says which keys there are.
func footer[T any](orders []order[T], by string) string {
	var all []string
	for _, o := range orders {
		word := fmt.Sprintf("%c %s", o.key, o.name)
		if o.name == by {
			word += "*"
		}
		all = append(all, word)
	}
	return "\nq quit; sort by " + strings.Join(all, ", ")
}

func (s *clusterStatus) headline() string {
	return fmt.Sprintf("%s, %s CPUs: online %s, batch %s of %s, offered %s, sold %s; %s", count(s.Nodes, "node"),
		inCores(&s.CPU.Capacity), inCores(&s.CPU.Online), inCores(&s.CPU.Batch), inCores(&s.CPU.Allowance),
		inCores(sum(&s.CPU.Offer)), inCores(sum(&s.CPU.Bound)), count(len(s.Troubles), "trouble"))
}

func nodeHeadline(name string, n *serve.NodeExplanation) string {
	text := strings.TrimSpace("node "+name) + ", policy " + string(n.Mode)
	if n.Slack == nil {
		return text + ", nothing was measured yet"
	}
	a := &n.Slack.CPU
	text += fmt.Sprintf(", %s CPUs: system %s, online %s, batch %s of %s", cores(a.Capacity), cores(a.Use.System),
		cores(a.Use.Online), cores(a.Use.Batch), cores(a.Allow))
	if n.Suppress != nil {
		text += fmt.Sprintf("; batch is limited to %s: %s", cores(n.Suppress.Milli), n.Suppress.Reason.Code)
	}
	return text
}

const barCells = 20

// bar draws how a node's CPU is used: by online pods, and what is sold beside them.
func bar(t *totals) string {
	capacity := t.Capacity.MilliValue()
	if capacity <= 0 {
		return ""
	}
	cells := func(q *resource.Quantity) int { return int((q.MilliValue()*barCells + capacity/2) / capacity) }
	online := min(cells(&t.Online), barCells)
	sold := min(cells(sum(&t.Bound)), barCells-online)
	return strings.Repeat("#", online) + strings.Repeat("=", sold) + strings.Repeat(".", barCells-online-sold)
}

// topNodes prints a line for each node; wide: with the policy, what is throttled, and how old the report is.
func topNodes(out io.Writer, nodes []nodeStatus, wide bool, now time.Time) error {
	heads := "NODE\tSTATE\tCPU: # ONLINE = SOLD\tCPUS\tONLINE\tBATCH\tMAY USE\tOFFERED\tSOLD\tMEMORY\tONLINE\t" +
		"BATCH\tMAY USE\tOFFERED\tSOLD"
	if wide {
		heads += "\tTHROTTLED CPU\tPOLICY\tREPORTED\tDETAIL"
	}
	return table(out, heads, nodes, func(n *nodeStatus) string {
		cells := []string{n.Name, n.State, bar(&n.CPU), n.CPU.cells(inCores), n.Memory.cells(inGiB)}
		if wide {
			reported := "-"
			if !n.Changed.IsZero() {
				reported = duration.HumanDuration(now.Sub(n.Changed)) + " ago"
			}
			cells = append(cells, throttledCell(&n.CPU, n.ThrottledCPU), orDash(n.Policy), reported, n.Detail)
		}
		return strings.Join(cells, "\t")
	})
}

// topPods prints a line for each pod; wide: with the age of what was measured.
func topPods(out io.Writer, pods []serve.PodUsage, wide bool) error {
	heads := "POD\tCLASS\tCPU\tREQUEST\tMAY USE\tWEIGHT\tWAITS\tTHROTTLED\tMEMORY"
	if wide {
		heads += "\tMEASURED"
	}
	return table(out, heads, pods, func(p *serve.PodUsage) string {
		class := string(p.Class)
		if p.Class == model.ClassBE && p.Tier != "" {
			class += " " + string(p.Tier)
		}
		allowed, weight := "-", "-"
		if p.Allowance > 0 {
			allowed = cores(p.Allowance)
		}
		if p.Weight > 0 {
			weight = fmt.Sprint(p.Weight)
		}
		cells := []string{p.Namespace + "/" + p.Name, class, cores(p.CPU), cores(p.Request), allowed, weight,
			thousandths(p.Wait), thousandths(p.Throttled), gib(p.Memory)}
		if wide {
			cells = append(cells, duration.HumanDuration(p.Age)+" ago")
		}
		return strings.Join(cells, "\t")
	})
}
