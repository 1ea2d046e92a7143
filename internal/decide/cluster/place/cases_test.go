package place

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/golden"
)

// scene is a node and a pod that needs one.
type scene struct {
	node Node
	pods []Weight
	tree Hierarchy
	pod  Pod
	want Want
	most int
}

func newScene() *scene {
	amount := model.Amount{CPU: 16_000, Memory: 64 << 30}
	account := func(capacity int64) Account { return Account{Capacity: capacity, Ceiling: capacity * 8 / 10} }
	return &scene{
		node: Node{
			Allocatable: amount,
			Report: &Report{
				CPU: account(amount.CPU), Memory: account(amount.Memory), Selling: model.SellOpen,
			},
		},
		tree: Hierarchy{CPU: amount.CPU},
		pod:  Pod{Weight: Weight{QoS: model.Burstable}},
	}
}

// TestCases runs the golden cases. A node has 16 CPUs and 64 GiB, a waterline of 80 %, and a report of zeros. CPU is in
// milli-cores, memory in GiB.
//
//	weighted SHARES [REQUEST] [LIMIT]   a Burstable pod of the node; "plain REQUEST", "guaranteed REQUEST" likewise
//	needs NAME VALUE...                 of the pod: shares, cpu, memory, batch (CPU), lasts, cpus, cores
//	requested CPU MEMORY, assumed CPU MEMORY, sold CPU
//	cpu NAME VALUE..., memory ...       of the report: system, online, hour, day, and on other days: four, eight
//	report missing, unreadable, empty, withdrawn; hot WHY, selling WORD, age DURATION
//	agent DURATION, agent unknown
//	zone CPUS FREE/THREADS...           a NUMA node and its cores with free CPUs
//	keeps CPUS                          how many of its free CPUs stay shared; "needs exclusive" them
func TestCases(t *testing.T) {
	for _, rule := range []string{"weights", "load", "batch", "cpus"} {
		golden.Each(t, func(t *testing.T, content string) string {
			s := newScene()
			do := func(command string) error { return s.command(strings.Fields(command)) }
			return golden.Blocks(t, content, do, func() string {
				out := s.outcome(rule)
				s = newScene()
				return out
			})
		}, "testdata/"+rule+".case")
	}
}

func (s *scene) command(words []string) error {
	number := func(i int) int64 {
		if i >= len(words) {
			return 0
		}
		n, _ := strconv.ParseInt(words[i], 10, 64)
		return n
	}
	r := s.node.Report
	switch words[0] {
	case "weighted":
		s.pods = append(s.pods, Weight{
			QoS: model.Burstable, Shares: number(1), Request: number(2), Limit: number(3),
		})
	case "plain":
		s.pods = append(s.pods, Weight{QoS: model.Burstable, Request: number(1)})
	case "guaranteed":
		s.pods = append(s.pods, Weight{QoS: model.Guaranteed, Request: number(1), Limit: number(1)})
	case "needs":
		return s.needs(words[1:])
	case "requested":
		s.node.Requested = model.Amount{CPU: number(1), Memory: number(2) << 30}
	case "assumed":
		s.node.Assumed = model.Amount{CPU: number(1), Memory: number(2) << 30}
	case "sold":
		s.node.Sold.CPU = number(1)
	case "cpu":
		return fill(&r.CPU, words[1:], 1)
	case "memory":
		return fill(&r.Memory, words[1:], 1<<30)
	case "report":
		switch words[1] {
		case "missing":
			s.node.Report = nil
		case "unreadable":
			s.node.Unreadable = true
		case "empty":
			r.CPU = Account{}
		case "withdrawn":
			r.Withdrawn = true
		}
	case "hot":
		r.Hot = words[1]
	case "selling":
		r.Selling = model.SellState(words[1])
	case "age":
		age, err := time.ParseDuration(words[1])
		r.Age = age
		return err
	case "agent":
		if words[1] == "unknown" {
			s.node.Agent.Unknown = true
			return nil
		}
		gone, err := time.ParseDuration(words[1])
		s.node.Agent.Gone = gone
		return err
	case "zone":
		z := Zone{ID: len(r.Zones), CPUs: int(number(1))}
		for _, w := range words[2:] {
			var c Core
			if _, err := fmt.Sscanf(w, "%d/%d", &c.Free, &c.Threads); err != nil {
				return err
			}
			z.Cores = append(z.Cores, c)
		}
		r.Zones = append(r.Zones, z)
	case "keeps":
		s.most = -int(number(1))
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

func (s *scene) needs(words []string) error {
	for i := 0; i < len(words); i += 2 {
		n, _ := strconv.ParseInt(words[i+1], 10, 64)
		switch words[i] {
		case "shares":
			s.pod.Weight.Shares = n
		case "cpu":
			s.pod.Requests.CPU, s.pod.Weight.Request = n, n
		case "memory":
			s.pod.Requests.Memory = n << 30
		case "batch":
			s.pod.Batch.CPU = n
		case "lasts":
			lasts, err := time.ParseDuration(words[i+1])
			if err != nil {
				return err
			}
			s.pod.Lasts = lasts
		case "cpus":
			s.want.CPUs = append(s.want.CPUs, int(n))
		case "exclusive":
			s.want.CPUs, s.want.Exclusive = append(s.want.CPUs, int(n)), true
		case "cores":
			s.want.CPUs, s.want.Cores = append(s.want.CPUs, int(n)), true
		default:
			return fmt.Errorf("no such need")
		}
	}
	return nil
}

func fill(a *Account, words []string, unit int64) error {
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil {
			return err
		}
		switch words[i] {
		case "system":
			a.System = n * unit
		case "online":
			a.Online = n * unit
		case "hour":
			a.PeakHour = n * unit
		case "day":
			a.PeakDay = n * unit
		case "four":
			a.OtherFour = n * unit
		case "eight":
			a.OtherEight = n * unit
		default:
			return fmt.Errorf("no such amount")
		}
	}
	return nil
}

func (s *scene) outcome(rule string) string {
	settings := DefaultSettings()
	var b strings.Builder
	line := func(verdict Reason) {
		if verdict.Code != "" {
			fmt.Fprintf(&b, "refused: %s: %s\n", verdict.Code, verdict)
		}
	}
	scored := func(score int64, why Reason) {
		fmt.Fprintf(&b, "score %d", score)
		if why.Code != "" {
			fmt.Fprintf(&b, ", as stock: %s: %s", why.Code, why)
		}
		b.WriteByte('\n')
	}
	switch rule {
	case "weights":
		var sums Sums
		for i := range s.pods {
			sums = sums.Add(&s.pods[i])
		}
		all := append(append([]Weight{}, s.pods...), s.pod.Weight)
		with := sums.Add(&s.pod.Weight)
		fmt.Fprintf(&b, "pressure %d/1000, dilution %d/1000, cost %d; expected mCPU %v\n",
			with.Pressure(s.tree.CPU), with.Dilution(s.tree.CPU), WeightCost(sums, &s.pod.Weight, s.tree.CPU),
			Expect(&s.tree, all))
		line(WeightFilter(&s.tree, s.pods, &s.pod.Weight, &settings))
	case "load":
		scored(LoadScore(&s.node, &s.pod, &settings))
	case "batch":
		line(BatchFilter(&s.node, &settings))
		scored(BatchScore(&s.node, &s.pod, &settings))
	case "cpus":
		var zones []Zone
		if s.node.Report != nil {
			zones = s.node.Report.Zones
		}
		most := s.most
		for i := range zones {
			most += zones[i].free(false)
		}
		line(CPUFilter(s.node.Report, zones, most, &s.want))
		fmt.Fprintf(&b, "score %d\n", CPUScore(zones, &s.want))
	}
	return b.String()
}
