package decide_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide"
	"github.com/waterline-io/waterline/internal/model"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected output of transcripts; commit that only if you understand what caused it")

// TestTranscripts runs the golden cases of every rule. A case is a text file of blocks. A block is commands, a line of
// four dashes, and what was decided. Between blocks the host is imagined to do all that the plan says.
//
//	node cpu=64 [kubelet=unknown|noquota|static|nopodcgroups] [readonly]
//	policy [mode=M] [scope=S] [quota=Q] [max=N] [override] [promote] [namespace=key:value:max] [pods=key:value:shares]
//	pod NAME class=C [request=MILLI] [limit=MILLI] [weight=N] [quota=Q] [self] [critical] [ended] [idle] [nocgroup]
//	    [label=key:value] [space=key:value] [containers=ID:LIMIT,...]
//	gone NAME                         deleted NAME (its cgroup still stands)
//	pods unknown|known
//	overwritten DIR KNOB VALUE        rejected DIR KNOB VALUE ERRNO        fight DIR KNOB DURATION
//	tick DURATION
//	busy                              also print the CPU that each pod gets while all of them want everything
func TestTranscripts(t *testing.T) {
	var files []string
	for _, pattern := range []string{"testdata/*.txt", "*/testdata/*.txt"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatal("no transcripts found")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runTranscript(t, file) })
	}
}

func runTranscript(t *testing.T, file string) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	var got strings.Builder
	commands := true
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case commands && line == "----":
			commands = false
			fmt.Fprintf(&got, "----\n%s", w.decide())
		case commands:
			fmt.Fprintln(&got, line)
			if err := w.do(line); err != nil {
				t.Fatalf("%s: %q: %v", file, line, err)
			}
		case line == "":
			commands = true
			fmt.Fprintln(&got)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got.String() != string(content) {
		t.Errorf("%s: decided differently. If you understand what caused it, rewrite with -rewrite and commit. Got:\n%s", file, got.String())
	}
}

// world is an imagined node on which every plan succeeds.
type world struct {
	node   model.Node
	policy model.Policy
	state  decide.State
	layout cgroup.Layout
	busy   bool
}

func newWorld() *world {
	w := &world{policy: model.DefaultPolicy(), layout: cgroup.Layout{Driver: cgroup.Cgroupfs, Root: "kubepods"}}
	w.node = model.Node{
		Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), PodsKnown: true, AllocatableMilli: 4000,
		Kubelet: model.Kubelet{Known: true, CFSQuota: true, QuotaPeriod: model.DefaultQuotaPeriod},
		Tree: model.Tree{
			Guaranteed: w.layout.Class(model.Guaranteed), Burstable: w.layout.Class(model.Burstable), BestEffort: w.layout.Class(model.BestEffort),
			Pods: map[string]model.PodGroup{},
		},
	}
	return w
}

func (w *world) do(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 || strings.HasPrefix(line, "#") {
		return nil
	}
	args := words[1:]
	switch words[0] {
	case "node":
		return w.setNode(args)
	case "policy":
		return w.setPolicy(args)
	case "pod":
		return w.setPod(args[0], args[1:])
	case "gone":
		w.node.Pods = slices.DeleteFunc(w.node.Pods, func(p *model.Pod) bool { return p.Name == args[0] })
		delete(w.node.Tree.Pods, args[0])
	case "deleted":
		w.node.Pods = slices.DeleteFunc(w.node.Pods, func(p *model.Pod) bool { return p.Name == args[0] })
	case "pods":
		w.node.PodsKnown = args[0] == "known"
	case "tick":
		d, err := time.ParseDuration(args[0])
		w.node.Now = w.node.Now.Add(d)
		return err
	case "overwritten", "rejected":
		incident := model.Incident{File: model.File{Dir: args[0], Knob: knob(args[1])}, Kind: model.Overwritten, Value: value(knob(args[1]), args[2])}
		if words[0] == "rejected" {
			incident.Kind, incident.Errno = model.Rejected, args[3]
		}
		w.node.Incidents = append(w.node.Incidents, incident)
	case "fight": // DIR KNOB DURATION: another writer overwrites the file every 10 ms
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		file := model.File{Dir: args[0], Knob: knob(args[1])}
		for end := w.node.Now.Add(d); w.node.Now.Before(end); w.node.Now = w.node.Now.Add(10 * time.Millisecond) {
			var plan model.Plan
			plan, w.state = decide.Node(w.node, w.policy, w.state)
			w.node.Incidents = nil
			if slices.ContainsFunc(plan.Settings, func(s model.Setting) bool { return s.File == file && s.Hold.Code == "" }) {
				w.node.Incidents = []model.Incident{{File: file, Kind: model.Overwritten, Value: model.Number(2)}}
			}
		}
	case "busy":
		w.busy = true
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

func (w *world) setNode(args []string) error {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "cpu":
			w.node.AllocatableMilli = number(value) * 1000
		case "kubelet":
			w.node.Kubelet = model.Kubelet{Known: value != "unknown", CFSQuota: value != "noquota", QuotaPeriod: model.DefaultQuotaPeriod, StaticCPUs: value == "static", NoPodCgroups: value == "nopodcgroups"}
		case "readonly":
			w.node.Tree.ReadOnly = value != "no"
		default:
			return fmt.Errorf("node has no %q", key)
		}
	}
	return nil
}

func (w *world) setPolicy(args []string) error {
	w.policy = model.DefaultPolicy()
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		parts := strings.Split(value, ":")
		switch key {
		case "mode":
			w.policy.Mode = model.Mode(value)
		case "scope":
			w.policy.Weight.Scope = model.Scope(value)
		case "quota":
			w.policy.Weight.Quota = model.QuotaMode(value)
		case "max":
			w.policy.Weight.Max = number(value)
		case "override":
			w.policy.Weight.OverrideGuaranteed = true
		case "promote":
			w.policy.Weight.PromoteBestEffort = true
		case "namespace":
			w.policy.Weight.Namespaces = append(w.policy.Weight.Namespaces, model.NamespaceMax{
				Selector: model.Selector{{Key: parts[0], Op: model.In, Values: parts[1:2]}}, Max: number(parts[2]),
			})
		case "pods":
			w.policy.Pods = append(w.policy.Pods, model.PodRule{
				Selector: model.Selector{{Key: parts[0], Op: model.In, Values: parts[1:2]}}, Shares: number(parts[2]),
			})
		default:
			return fmt.Errorf("policy has no %q", key)
		}
	}
	return nil
}

func (w *world) setPod(name string, args []string) error {
	pod := &model.Pod{UID: name, APIUID: name, Namespace: "default", Name: name, Labels: map[string]string{}, NamespaceLabels: map[string]string{}}
	group := model.PodGroup{}
	exists := true
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		k, v, _ := strings.Cut(value, ":")
		switch key {
		case "class":
			pod.QoS = map[string]model.QoSClass{"Guaranteed": model.Guaranteed, "Burstable": model.Burstable, "BestEffort": model.BestEffort}[value]
		case "request":
			pod.RequestMilli = number(value)
		case "limit":
			pod.LimitMilli = number(value)
		case "weight":
			pod.Asks.Shares = number(value)
		case "quota":
			pod.Asks.Quota = model.QuotaMode(value)
		case "bad":
			pod.Asks.Notices = append(pod.Asks.Notices, model.Reason{Code: model.BadAnnotation, Key: k, Text: v, Fix: "write a number"})
		case "both":
			pod.Asks.Notices = append(pod.Asks.Notices, model.Reason{Code: model.BothSpellings, Key: k, Text: v, Fix: "remove one"})
		case "self":
			pod.Self = true
		case "critical":
			pod.Critical = true
		case "ended":
			pod.Ended = true
		case "idle":
			group.Idle = true
		case "nocgroup":
			exists = false
		case "label":
			pod.Labels[k] = v
		case "space":
			pod.NamespaceLabels[k] = v
		case "containers":
			for _, c := range strings.Split(value, ",") {
				id, limit, _ := strings.Cut(c, ":")
				group.Containers = append(group.Containers, id)
				if limit != "" {
					pod.Containers = append(pod.Containers, model.Container{Name: id, ID: id, LimitMilli: number(limit)})
				}
			}
		default:
			return fmt.Errorf("a pod has no %q", key)
		}
	}
	w.node.Pods = slices.DeleteFunc(w.node.Pods, func(p *model.Pod) bool { return p.Name == name })
	w.node.Pods = append(w.node.Pods, pod)
	slices.SortFunc(w.node.Pods, func(a, b *model.Pod) int { return strings.Compare(a.UID, b.UID) })
	delete(w.node.Tree.Pods, name)
	if exists {
		group.Dir, group.Inode = w.layout.Pod(pod.QoS, name), 1
		w.node.Tree.Pods[name] = group
	}
	return nil
}

// decide runs a round, prints it and imagines that the host did what it says.
func (w *world) decide() string {
	var plan model.Plan
	plan, w.state = decide.Node(w.node, w.policy, w.state)
	w.node.Incidents = nil
	var out strings.Builder
	owned := map[model.File]model.Owned{}
	for _, o := range w.node.Owned {
		owned[o.File] = o
	}
	for _, s := range plan.Settings {
		fmt.Fprintf(&out, "%s %s %s", s.Dir, s.Knob, s.Value)
		if s.Release {
			out.WriteString(" (given back)")
		}
		fmt.Fprintf(&out, "  %s", s.Reason)
		if s.Hold.Code != "" {
			fmt.Fprintf(&out, "  held: %s", s.Hold)
		}
		out.WriteByte('\n')
		switch {
		case s.Hold.Code != "":
		case s.Release:
			delete(owned, s.File)
		default:
			o, known := owned[s.File]
			if !known {
				o = model.Owned{File: s.File, Theirs: theirs(s.Knob)}
			}
			o.Ours = s.Value
			owned[s.File] = o
		}
	}
	for _, n := range plan.Notices {
		fmt.Fprintf(&out, "notice %q %s\n", n.Name, n.Reason)
	}
	if !plan.Next.IsZero() {
		fmt.Fprintf(&out, "again in %s\n", plan.Next.Sub(w.node.Now))
	}
	if w.busy {
		cpus := whenBusy(&w.node, &plan)
		for _, pod := range w.node.Pods {
			if !pod.Ended {
				fmt.Fprintf(&out, "busy %s %.2f CPU\n", pod.Name, cpus[pod.UID])
			}
		}
		w.busy = false
	}
	w.node.Owned = nil
	for _, o := range owned {
		w.node.Owned = append(w.node.Owned, o)
	}
	slices.SortFunc(w.node.Owned, func(a, b model.Owned) int { return a.File.Compare(b.File) })
	return out.String()
}

// whenBusy returns the CPU that each pod gets while all of them want everything there is: the kernel's arithmetic over
// the plan, and over what the kubelet sets where the plan says nothing.
func whenBusy(n *model.Node, plan *model.Plan) map[string]float64 {
	value := func(dir string, knob model.Knob, otherwise int64) int64 {
		for _, s := range plan.Settings {
			if s.Dir == dir && s.Knob == knob && s.Hold.Code == "" {
				return s.Value.Number
			}
		}
		return otherwise
	}
	claim := func(p *model.Pod) model.Claim {
		shares := model.MilliCPUToShares(p.RequestMilli)
		if p.QoS == model.BestEffort {
			shares = model.MinShares
		}
		dir := n.Tree.Pods[p.UID].Dir
		limit := math.Inf(1)
		enforced := !n.Kubelet.Known || n.Kubelet.CFSQuota
		if p.LimitMilli > 0 && enforced && value(dir, model.Quota, 0) != model.Unlimited {
			limit = float64(p.LimitMilli) / 1000
		}
		return model.Claim{Weight: float64(value(dir, model.Shares, shares)), Limit: limit}
	}
	var inside [3][]model.Claim
	var uids [3][]string
	var milli int64
	for _, p := range n.Pods {
		if p.Ended {
			continue
		}
		inside[p.QoS] = append(inside[p.QoS], claim(p))
		uids[p.QoS] = append(uids[p.QoS], p.UID)
		if p.QoS == model.Burstable {
			milli += p.RequestMilli
		}
	}
	claims := append([]model.Claim{}, inside[model.Guaranteed]...)
	names := append([]string{}, uids[model.Guaranteed]...)
	for q, shares := range map[model.QoSClass]int64{
		model.Burstable:  value(n.Tree.Burstable, model.Shares, model.MilliCPUToShares(milli)),
		model.BestEffort: value(n.Tree.BestEffort, model.Shares, model.MinShares),
	} {
		if len(inside[q]) == 0 {
			continue
		}
		var limit float64
		for _, c := range inside[q] {
			limit += c.Limit
		}
		claims = append(claims, model.Claim{Weight: float64(shares), Limit: limit})
		names = append(names, q.String())
	}
	got := map[string]float64{}
	for i, amount := range model.Divide(float64(n.AllocatableMilli)/1000, claims) {
		got[names[i]] = amount
	}
	for _, q := range []model.QoSClass{model.Burstable, model.BestEffort} {
		for i, amount := range model.Divide(got[q.String()], inside[q]) {
			got[uids[q][i]] = amount
		}
	}
	return got
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func knob(name string) model.Knob {
	i := slices.IndexFunc(model.Knobs(), func(k model.Knob) bool { return k.String() == name })
	return model.Knobs()[i]
}

// value reads a number or a list of CPUs as a transcript shows it.
func value(k model.Knob, s string) model.Value {
	if k == model.Cpuset {
		return model.Value{List: s}
	}
	return model.Number(number(s))
}

// theirs is what a file held that nobody of ours had written yet.
func theirs(k model.Knob) model.Value {
	if k == model.Cpuset {
		return model.Value{List: model.Inherited}
	}
	return model.Number(1024)
}
