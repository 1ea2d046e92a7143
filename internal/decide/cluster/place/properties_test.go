package place

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/weight"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

const histories = 20_000

func randomWeight(r *rand.Rand) Weight {
	w := Weight{QoS: model.QoSClass(r.IntN(3)), Request: r.Int64N(4000)}
	switch w.QoS {
	case model.Guaranteed:
		w.Request++
		w.Limit = w.Request
		w.Unlimited = r.IntN(3) == 0
	case model.Burstable:
		if r.IntN(2) == 0 {
			w.Limit = w.Request + r.Int64N(8000) + 1
		}
	default:
		w.Request = 0
	}
	if r.IntN(3) == 0 {
		w.Shares = max(r.Int64N(20_000), model.MinShares)
	}
	return w
}

func randomWeights(r *rand.Rand, n int) []Weight {
	all := make([]Weight, n)
	for i := range all {
		all[i] = randomWeight(r)
	}
	return all
}

// TestSharesOfAgent compares the shares with those that the agent's rule writes to the node.
func TestSharesOfAgent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range histories / 4 {
		h := Hierarchy{CPU: 1000 * (1 + r.Int64N(32)), OverrideGuaranteed: r.IntN(4) == 0, PodsOnly: r.IntN(4) == 0}
		pods := randomWeights(r, r.IntN(12))
		n := fixture.Node(model.Amount{CPU: h.CPU, Memory: 64 << 30})
		p := fixture.Policy()
		p.Weight.OverrideGuaranteed = h.OverrideGuaranteed
		if h.PodsOnly {
			p.Weight.Scope = model.ScopeClass
		}
		for i, w := range pods {
			pod := fixture.Pod(string(rune('a'+i)), w.QoS)
			pod.RequestMilli, pod.LimitMilli, pod.Annotations.Shares = w.Request, w.Limit, w.Shares
			if w.Unlimited {
				pod.Annotations.Quota = model.QuotaUnlimited
			}
			fixture.Bind(&n, pod)
			n.Tree.Pods[pod.UID] = model.PodGroup{Dir: pod.UID}
		}
		set := map[string]int64{}
		for _, s := range weight.Decide(&n, &p).Settings {
			if s.Knob == model.Shares {
				set[s.Dir] = s.Value.Number
			}
		}
		shares, class := Effective(&h, pods)
		for i := range pods {
			if want, weighted := set[string(rune('a'+i))]; weighted && want != shares[i] {
				t.Fatalf("pod %d has %d shares, and the agent gives it %d: %+v on %+v", i, shares[i], want, pods, h)
			}
		}
		if want, raised := set[n.Tree.Burstable]; raised && want != class {
			t.Fatalf("the class has %d shares, and the agent gives it %d: %+v on %+v", class, want, pods, h)
		}
	}
}

// TestExpectSums checks that what pods get is no more than the node has, nor than each may use, and that nobody waits
// for CPU that is left over.
func TestExpectSums(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range histories {
		h := Hierarchy{CPU: 1000 * (1 + r.Int64N(32))}
		pods := randomWeights(r, 1+r.IntN(12))
		var sum, most int64
		for i, got := range Expect(&h, pods) {
			sum, most = sum+got, most+pods[i].most(h.CPU)
			if got < 0 || got > pods[i].most(h.CPU) {
				t.Fatalf("pod %d gets %d of at most %d", i, got, pods[i].most(h.CPU))
			}
		}
		if sum > h.CPU || sum < min(h.CPU, most)-int64(len(pods))-1 {
			t.Fatalf("%d of %d handed out, at most %d can be used: %+v", sum, h.CPU, most, pods)
		}
	}
}

// TestNoDilutionMeetsAll checks the sums against the hierarchy: without dilution, every weight is met.
func TestNoDilutionMeetsAll(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	met := 0
	for range histories {
		h := Hierarchy{CPU: 1000 * (4 + r.Int64N(60))}
		pods := randomWeights(r, 1+r.IntN(10))
		var sums Sums
		for i := range pods {
			pods[i].Shares = max(pods[i].Shares, min(pods[i].Shares, 1)*pods[i].kubelet())
			if pods[i].QoS == model.Guaranteed {
				pods[i].Shares = 0 // such a weight counts only without a quota
			}
			sums = sums.Add(&pods[i])
		}
		if sums.Dilution(h.CPU) > 0 || (sums.Weights+sums.Plain)*1000 > h.CPU*model.SharesPerCPU {
			continue
		}
		met++
		for i, got := range Expect(&h, pods) {
			// Shares are rounded down to whole ones, of which one is a milli-core.
			if want := pods[i].Expects(h.CPU); got < want-want/50-4 {
				t.Fatalf("pod %d gets %d of %d: %+v on %d", i, got, want, pods, h.CPU)
			}
		}
	}
	if met < 100 {
		t.Fatalf("only %d nodes without dilution", met)
	}
}

// TestWeightFilter checks that a pod without an effect is never refused, that the filter never refuses where nothing is
// diluted, and that on refusal somebody would have less than their part.
func TestWeightFilter(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	s := DefaultSettings()
	refused := 0
	for range histories {
		h := Hierarchy{CPU: 1000 * (1 + r.Int64N(32))}
		pods, p := randomWeights(r, r.IntN(10)), randomWeight(r)
		why := WeightFilter(&h, pods, &p, &s)
		if why.Code == "" {
			continue
		}
		refused++
		all := append(slices.Clone(pods), p)
		after := Expect(&h, all)
		if !slices.ContainsFunc(indices(all), func(i int) bool {
			want := all[i].Expects(h.CPU)
			return want > 0 && after[i]*1000 < want*s.Met
		}) {
			t.Fatalf("refused for %s, but all get their part: %v", why, after)
		}
	}
	if refused < 100 {
		t.Fatalf("only %d refused", refused)
	}
}

// TestBestEffortWeightCountsInClass checks that the weight of a BestEffort pod changes nothing for the pods of other
// classes: nobody is refused for it, and it costs a node no more than without the weight.
func TestBestEffortWeightCountsInClass(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 1))
	s := DefaultSettings()
	refused := 0
	for range histories {
		h := Hierarchy{CPU: 1000 * (1 + r.Int64N(32))}
		pods, p := randomWeights(r, r.IntN(10)), randomWeight(r)
		plain := slices.Clone(pods)
		var sums, plainSums Sums
		for i := range pods {
			if plain[i].QoS == model.BestEffort {
				plain[i].Shares = 0
			}
			sums, plainSums = sums.Add(&pods[i]), plainSums.Add(&plain[i])
		}
		why, without := WeightFilter(&h, pods, &p, &s), WeightFilter(&h, plain, &p, &s)
		if why.String() != without.String() || sums != plainSums {
			t.Fatalf("%q and %+v, and without weights of BestEffort pods %q and %+v", why, sums, without, plainSums)
		}
		if why.Code != "" {
			refused++
		}
		p = Weight{QoS: model.BestEffort, Shares: max(r.Int64N(200_000), model.MinShares)}
		if why := WeightFilter(&h, pods, &p, &s); why.Code != "" {
			t.Fatalf("a BestEffort pod is refused: %s", why)
		}
		if cost, least := WeightCost(sums, &p, h.CPU), WeightCost(sums, &Weight{QoS: p.QoS}, h.CPU); cost != least {
			t.Fatalf("its weight raises the cost from %d to %d", least, cost)
		}
	}
	if refused < 100 {
		t.Fatalf("only %d refused", refused)
	}
}

func indices(all []Weight) (numbers []int) {
	for i := range all {
		numbers = append(numbers, i)
	}
	return numbers
}

// TestSpread checks that a cheaper node never scores less, and that scores stay in their range.
func TestSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	for range histories {
		costs := make([]int64, r.IntN(8))
		for i := range costs {
			costs[i] = r.Int64N(3000)
		}
		scores := slices.Clone(costs)
		Spread(scores)
		for i := range scores {
			if scores[i] < 0 || scores[i] > MaxScore {
				t.Fatalf("score %d of %v", scores[i], costs)
			}
			for k := range scores {
				if costs[i] < costs[k] && scores[i] < scores[k] {
					t.Fatalf("%v became %v", costs, scores)
				}
			}
		}
		if len(costs) > 0 && slices.Max(scores) != MaxScore {
			t.Fatalf("%v became %v", costs, scores)
		}
	}
}

func randomNode(r *rand.Rand) Node {
	all := model.Amount{CPU: 1000 * (1 + r.Int64N(64)), Memory: (1 + r.Int64N(256)) << 30}
	part := func(n int64) int64 { return r.Int64N(n + 1) }
	account := func(n int64) Account {
		return Account{
			Capacity: n, Ceiling: part(n), System: part(n) / 4, Online: part(n), PeakHour: part(n), PeakDay: part(n),
		}
	}
	n := Node{
		Allocatable: all, Requested: model.Amount{CPU: part(all.CPU), Memory: part(all.Memory)},
		Sold:    model.Amount{CPU: part(all.CPU) / 2, Memory: part(all.Memory) / 2},
		Assumed: model.Amount{CPU: part(all.CPU) / 4, Memory: part(all.Memory) / 4},
		Report:  &Report{CPU: account(all.CPU), Memory: account(all.Memory), Selling: model.SellOpen, Zones: []Zone{}},
	}
	for id := range r.IntN(3) {
		n.Report.Zones = append(n.Report.Zones, Zone{ID: id, CPUs: 8, Cores: []Core{{Free: 1 + r.IntN(2), Threads: 2}}})
	}
	switch r.IntN(8) {
	case 0:
		n.Report = nil
	case 1:
		n.Unreadable = true
	case 2:
		n.Agent.Gone = time.Duration(r.IntN(120)) * time.Second
	case 3:
		n.Agent.Unknown = true
	case 4:
		n.Report.Age = time.Duration(r.IntN(60)) * time.Minute
	}
	return n
}

func randomPod(r *rand.Rand) Pod {
	return Pod{
		Requests: model.Amount{CPU: r.Int64N(8000), Memory: r.Int64N(8 << 30)},
		Batch:    model.Amount{CPU: r.Int64N(4000), Memory: r.Int64N(4 << 30)},
		Lasts:    time.Duration(r.IntN(3)) * time.Hour / 2,
	}
}

// TestScores checks that more load never scores better, that scores stay in their range, and that a node whose report
// does not count scores exactly as stock.
func TestScores(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	s := DefaultSettings()
	for range histories {
		n, p := randomNode(r), randomPod(r)
		load, why := LoadScore(&n, &p, &s)
		batch, _ := BatchScore(&n, &p, &s)
		for _, score := range []int64{load, batch} {
			if score < 0 || score > MaxScore {
				t.Fatalf("score %d of %+v", score, n)
			}
		}
		if stock := StockScore(&n, &p); why.Code != "" && (load != stock || batch != stock) {
			t.Fatalf("%s: load %d and batch %d, not %d as stock", why.Code, load, batch, stock)
		}
		busier := n
		if n.Report != nil {
			report := *n.Report
			report.CPU.Online += r.Int64N(4000)
			report.CPU.PeakDay += r.Int64N(4000)
			report.Memory.System += r.Int64N(4 << 30)
			busier.Report = &report
		}
		busier.Assumed.CPU += r.Int64N(4000)
		busier.Sold.CPU += r.Int64N(4000)
		if after, _ := LoadScore(&busier, &p, &s); after > load {
			t.Fatalf("busier, and the load score rose from %d to %d", load, after)
		}
		if after, _ := BatchScore(&busier, &p, &s); after > batch {
			t.Fatalf("busier, and the batch score rose from %d to %d", batch, after)
		}
		if why.Code == "" {
			late := n
			late.Agent = Agent{Gone: n.Agent.Gone + time.Duration(r.IntN(10))*time.Second}
			if _, gone := late.Trusted(&s); gone.Code == "" {
				if after, _ := BatchScore(&late, &p, &s); !n.Agent.Unknown && after > batch {
					t.Fatalf("an older offer, and the batch score rose from %d to %d", batch, after)
				}
			}
		}
	}
}

// TestStaleNeverBlocks checks that no rule refuses an online pod for want of a report, and none a batch pod while its
// agent is there.
func TestStaleNeverBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	s := DefaultSettings()
	refused := 0
	for range histories {
		n := randomNode(r)
		want := Want{CPUs: []int{1 + r.IntN(4)}}
		var zones []Zone
		report, _ := n.Current(&s)
		if report != nil {
			zones = report.Zones
		}
		cpus := CPUFilter(report, zones, 0, &want)
		if lost := !n.Agent.Unknown && n.Agent.Gone > s.AgentGrace; n.Report != nil && !n.Unreadable && !lost &&
			n.Report.Age <= s.ReportMaxAge {
			if cpus.Code != "" {
				refused++
			}
			continue
		}
		if cpus.Code != "" {
			t.Fatalf("%+v is refused: %s", n, cpus)
		}
		if why := BatchFilter(&n, &s); why.Code != "" && (n.Agent.Unknown || n.Agent.Gone <= s.AgentGrace) {
			t.Fatalf("refused: %s", why)
		}
	}
	if refused < 100 {
		t.Fatalf("only %d refused by reports that count", refused)
	}
}

// TestCPUScore checks that CPUFilter and CPUScore agree on what fits, and that scoring changes nothing.
func TestCPUScore(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	for range histories {
		var zones []Zone
		for id := range 1 + r.IntN(4) {
			z := Zone{ID: id}
			for range r.IntN(6) {
				c := Core{Threads: 1 + r.IntN(2)}
				c.Free = 1 + r.IntN(c.Threads)
				z.Cores = append(z.Cores, c)
				z.CPUs += c.Threads
			}
			z.CPUs += r.IntN(4)
			zones = append(zones, z)
		}
		before := slices.Clone(zones)
		w := Want{CPUs: []int{1 + r.IntN(8)}, Cores: r.IntN(3) == 0}
		score := CPUScore(zones, &w)
		why := CPUFilter(&Report{Zones: zones}, zones, 0, &w)
		if (score > 0) != (why.Code == "") || score < 0 || score > MaxScore {
			t.Fatalf("score %d, %q: %+v in %+v", score, why.Code, w, zones)
		}
		for i := range zones {
			if len(zones[i].Cores) != len(before[i].Cores) {
				t.Fatal("the zones were changed")
			}
		}
	}
}

// TestLedger compares random histories of reservations with a list: no CPU is promised twice while pods take CPUs that
// are not promised, a pod that left has none, and an estimate counts once and fades.
func TestLedger(t *testing.T) {
	type pod struct {
		node string
		at   time.Duration
		cpus model.CPUSet
	}
	s := DefaultSettings()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(9, seed))
		var l Ledger
		dumb := map[string]pod{}
		now := time.Duration(0)
		for range 200 {
			now += time.Duration(r.IntN(60)) * time.Second
			uid, node := string(rune('a'+r.IntN(12))), string(rune('A'+r.IntN(3)))
			switch r.IntN(4) {
			case 0:
				l.Forget(uid)
				delete(dumb, uid)
			case 1:
				l.Prune(now, &s)
			default:
				if _, known := dumb[uid]; known {
					continue
				}
				taken := l.Promised(node)
				var cpus model.CPUSet
				for id := 0; id < 16 && cpus.Len() < 2; id++ {
					if !taken.Has(id) {
						cpus.Add(id)
					}
				}
				l.Assume(node, uid, now, model.Amount{CPU: 1000})
				l.Promise(node, uid, now+time.Second, cpus)
				dumb[uid] = pod{node, now, cpus}
			}
			for _, node := range []string{"A", "B", "C"} {
				var sum model.Amount
				var all model.CPUSet
				promised := 0
				for _, p := range dumb {
					if p.node != node {
						continue
					}
					sum = sum.Plus(fade(model.Amount{CPU: 1000}, now-p.at, &s))
					all, promised = all.Or(p.cpus), promised+p.cpus.Len()
				}
				if all.Len() != promised || l.Promised(node) != all {
					t.Fatalf("promised twice or lost: %s, not %s", l.Promised(node), all)
				}
				if l.Load(node, now, &s) != sum {
					t.Fatalf("load %v, not %v", l.Load(node, now, &s), sum)
				}
				if until := min(l.Steady(node), now+time.Hour); until < now || l.Load(node, until, &s) != sum {
					t.Fatalf("load %v at %s, and %v should last until then", l.Load(node, until, &s), until, sum)
				}
			}
		}
		for uid := range dumb {
			l.Forget(uid)
		}
		if l.Len() != 0 || len(l.nodes) != 0 {
			t.Fatal("pods stay after they left")
		}
	}
}

// TestFades checks that an estimate never counts for more as time passes.
func TestFades(t *testing.T) {
	s := DefaultSettings()
	estimate := model.Amount{CPU: 1000, Memory: 1 << 30}
	last := estimate
	for after := time.Duration(0); after < 2*s.Settle; after += time.Second {
		now := fade(estimate, after, &s)
		if now.CPU > last.CPU || now.Memory > last.Memory {
			t.Fatalf("after %s it grew", after)
		}
		last = now
	}
	if last != (model.Amount{}) {
		t.Fatalf("%v stays", last)
	}
}
