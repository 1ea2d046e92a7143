package kube

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/model"
)

// zones compares time zones by their names.
var zones = cmp.Comparer(func(a, b model.TimeZone) bool { return a.String() == b.String() })

const header = "apiVersion: waterline.io/v1alpha1\nkind: ColocationPolicy\nmetadata: {name: p}\n"

// example has every part of a policy, with values that are not the defaults.
const example = header + `
spec:
  mode: Enforce
  priority: 10
  nodeSelector: {matchLabels: {pool: web}}
  rollout: {nodes: 25%}
  windows:
    - {name: night, start: "00:00", end: "09:00", timeZone: Asia/Shanghai, drainBefore: 15m}
    - {name: noon, start: 12:30, end: 13:30, timeZone: UTC}
  cpu: {waterline: 62.5%, mid: 10%, suppression: Arithmetic, minBatch: 2.5%, batchClass: GroupIdentity}
  memory: {method: Static, ratio: 30%}
  protect:
    burst: false
    memory: true
    interference: true
    eviction: {perNodePerHour: 2}
    services:
      - selector: {matchLabels: {app: web}}
        namespaceSelector: {matchLabels: {team: shop}}
        metric: {port: 9090, path: "/m?a=b", name: "http:seconds", labels: {handler: /buy, code: "200"}, quantile: "0.999"}
        max: "0.020"
      - {selector: {}, metric: {port: 1, name: lag}, max: "100000000000.000001"}
      - {selector: {}, prometheus: {url: "https://prometheus:9090/p/", query: "lag{pod='$pod'}"}, max: "2"}
  weight: {scope: Class, quota: Unlimited, max: 16384, namespaces: [{selector: {matchLabels: {team: video}}, max: 262144}]}
  podDefaults: [{selector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}, cpuShare: 10240, cpuManager: Share, cpuPlacement: Spread}]
  privileges:
    - {namespaceSelector: {}, allow: [ShareCPUs, NeverEvict]}
    - {namespaceSelector: {matchLabels: {team: video}}, allow: [LSE]}
`

func TestParsePolicy(t *testing.T) {
	got, err := ParsePolicy([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	shanghai, err := model.LoadTimeZone("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	utc, err := model.LoadTimeZone("UTC")
	if err != nil {
		t.Fatal(err)
	}
	want := model.ClusterPolicy{
		Name: "p", Priority: 10, Rollout: 25, Nodes: model.Selector{{Key: "pool", Op: model.In, Values: []string{"web"}}},
		Windows: []model.Window{
			{Name: "night", End: 9 * 60, Zone: shanghai, DrainBefore: 15 * time.Minute},
			{Name: "noon", Start: 12*60 + 30, End: 13*60 + 30, Zone: utc},
		},
		Policy: model.Policy{
			Mode:     model.ModeEnforce,
			CPU:      model.SellPolicy{Waterline: 625, Method: model.SellPredicted, Mid: 100},
			Memory:   model.SellPolicy{Waterline: 800, Method: model.SellStatic, Ratio: 300},
			Suppress: model.SuppressPolicy{By: model.SuppressByArithmetic, MinBatch: 25}, Protect: model.ProtectPolicy{
				Memory: true, Interference: true, EvictPerHour: 2,
			},
			Weight: model.WeightPolicy{
				Scope: model.ScopeClass, Quota: model.QuotaUnlimited, Max: 16384, Batch: model.BatchByIdentity,
				Namespaces: []model.NamespaceMax{
					{Selector: model.Selector{{Key: "team", Op: model.In, Values: []string{"video"}}}, Max: 262144},
				},
			},
			Pods: []model.PodRule{{
				Selector: model.Selector{{Key: "app", Op: model.NotIn, Values: []string{"web"}}},
				Shares:   10240, CPUs: model.CPUShare, Placement: model.PlaceSpread,
			}},
			Services: []model.ServiceRule{
				{
					Selector:   model.Selector{{Key: "app", Op: model.In, Values: []string{"web"}}},
					Namespaces: model.Selector{{Key: "team", Op: model.In, Values: []string{"shop"}}},
					Source: model.ServiceSource{
						Port: 9090, Path: "/m?a=b", Metric: "http:seconds", Quantile: 999_000,
						Labels: []model.MetricLabel{{Name: "code", Value: "200"}, {Name: "handler", Value: "/buy"}},
					},
					Max: 20_000,
				},
				{Source: model.ServiceSource{Port: 1, Path: "/metrics", Metric: "lag"}, Max: 100_000_000_000_000_001},
				{
					Source: model.ServiceSource{URL: "https://prometheus:9090/p/", Query: "lag{pod='$pod'}"}, Max: 2_000_000,
				},
			},
			Privileges: []model.PrivilegeRule{
				{Allow: []model.Privilege{model.PrivilegeShareCPUs, model.PrivilegeNeverEvict}},
				{
					Namespaces: model.Selector{{Key: "team", Op: model.In, Values: []string{"video"}}},
					Allow:      []model.Privilege{model.PrivilegeLSE},
				},
			},
		},
	}
	if diff := cmp.Diff(want, got, zones); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if p, err := ParsePolicy([]byte(header + "spec: {mode: Disabled}")); err != nil ||
		p.Policy.Mode != model.ModeDisabled {
		t.Errorf("mode Disabled: %+v, %v", p, err)
	}
	for labels, want := range map[*map[string]string]bool{{"app": "web"}: false, {"app": "db"}: true, {}: true} {
		if got.Policy.Pods[0].Selector.Matches(*labels) != want {
			t.Errorf("%v: %v", *labels, !want)
		}
	}
}

// TestPolicyDefaults checks the defaults of an empty policy, and of empty fields.
func TestPolicyDefaults(t *testing.T) {
	got, err := ParsePolicy([]byte(header + "spec: {}"))
	want := model.ClusterPolicy{Name: "p", Rollout: 100, Policy: model.DefaultPolicy()}
	if diff := cmp.Diff(want, got, zones); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	got, err = ParsePolicy([]byte(header + "spec: {protect: {eviction: {}}}"))
	if err != nil || got.Policy.Protect.EvictPerHour != 6 {
		t.Errorf("with evictions got %+v, %v", got.Policy.Protect, err)
	}
	got, err = ParsePolicy([]byte(header + "spec: {cpu: {}, memory: {}}"))
	want.Policy.CPU.Method, want.Policy.Memory.Method = model.SellPredicted, model.SellPredicted
	want.Policy.Protect.Burst = true
	want.Policy.Suppress.By, want.Policy.Weight.Batch = model.SuppressOnHarm, model.BatchByWeight
	if diff := cmp.Diff(want, got, zones); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

// TestBadPolicy checks that each error names the field, the value and what to do.
func TestBadPolicy(t *testing.T) {
	for _, c := range []struct{ document, want string }{
		{"apiVersion: v1\nkind: Pod", `apiVersion "v1" and kind "Pod": write waterline.io/v1alpha1`},
		{header + "spec: {mode: enforce}", `spec.mode: "enforce" cannot be used: write Observe or Enforce or Disabled`},
		{header + "spec: {weight: {max: 1}}", "spec.weight.max: 1 cannot be used: write shares from 2 to 262144"},
		{header + "spec: {weight: {scop: node}}", `unknown field "scop"`},
		{
			header + "spec: {podDefaults: [{selector: {matchExpressions: [{key: a, operator: Is}]}, cpuShare: 5}]}",
			`operator "Is" cannot be used`,
		},
		{
			header + "spec: {podDefaults: [{selector: {matchExpressions: [{key: a, operator: In}]}, cpuShare: 5}]}",
			"In with 0 values",
		},
		{header + "spec: {mode: all, weight: {quota: none}}", `spec.weight.quota: "none"`},
		{
			header + "spec: {podDefaults: [{selector: {}, cpuManager: alone}]}",
			`spec.podDefaults[0].cpuManager: "alone" cannot be used: write None or Share or Exclusive`,
		},
		{
			header + "spec: {podDefaults: [{selector: {}, cpuShare: 5, cpuPlacement: Spread}]}",
			`spec.podDefaults[0].cpuPlacement: "Spread" cannot be used: write cpuManager as well`,
		},
		{
			header + "spec: {podDefaults: [{selector: {}}]}",
			"spec.podDefaults[0]: a rule that gives nothing cannot be used: write cpuShare or cpuManager",
		},
		{
			header + "spec: {cpu: {waterline: 65}}",
			`spec.cpu.waterline: "65" cannot be used: write a percentage from 1% to 100%`,
		},
		{header + "spec: {cpu: {waterline: 100.1%}}", `spec.cpu.waterline: "100.1%"`},
		{header + "spec: {memory: {waterline: NaN%}}", `spec.memory.waterline: "NaN%"`},
		{
			header + "spec: {cpu: {method: guess}}",
			`spec.cpu.method: "guess" cannot be used: write Predicted or Realtime or Static`,
		},
		{
			header + "spec: {cpu: {method: Static}}",
			`spec.cpu.ratio: "" cannot be used: write it with method Static, and only there`,
		},
		{header + "spec: {cpu: {ratio: 300%}}", `spec.cpu.ratio: "300%"`},
		{
			header + "spec: {memory: {method: Static, ratio: 300%}}",
			`spec.memory.ratio: "300%" cannot be used: write a percentage from 0% to 100%`,
		},
		{header + "spec: {cpu: {waterline: 6.25%}}", `spec.cpu.waterline: "6.25%"`},
		{header + "spec: {cpu: {waterline: 065%}}", `spec.cpu.waterline: "065%"`},
		{
			header + "spec: {cpu: {suppression: idle}}",
			`spec.cpu.suppression: "idle" cannot be used: write OnHarm or Arithmetic or None`,
		},
		{header + "spec: {memory: {suppression: Quota}}", `unknown field "suppression"`},
		{header + "spec: {protect: {eviction: {freeze: true}}}", `unknown field "freeze"`},
		{header + "spec: {weight: {bestEffort: Promote}}", `unknown field "bestEffort"`},
		{header + "spec: {resourceNames: Koordinator}", `unknown field "resourceNames"`},
		{header + "spec: {priority: 3000000000}", "reading the policy"},
		{
			header + "spec: {rollout: {nodes: 101%}}",
			`spec.rollout.nodes: "101%" cannot be used: write a whole percentage from 0% to 100%`,
		},
		{header + "spec: {rollout: {nodes: 2.5%}}", `spec.rollout.nodes: "2.5%"`},
		{header + "spec: {rollout: {}}", `spec.rollout.nodes: "" cannot be used`},
		{header + "spec: {rollout: {percent: 25}}", `unknown field "percent"`},
		{
			header + "spec: {protect: {eviction: {perNodePerHour: -1}}}",
			"spec.protect.eviction.perNodePerHour: -1 cannot be used: write a whole number from 0 to 600",
		},
		{
			header + "spec: {nodeSelector: {matchLabels: {pool: web server}}}",
			`spec.nodeSelector.matchLabels: value "web server" cannot be used`,
		},
		{
			header + "spec: {nodeSelector: {matchExpressions: [{key: a b, operator: Exists}]}}",
			`spec.nodeSelector.matchExpressions[0]: label "a b" cannot be used: write the name of a label`,
		},
		{header + "spec: {podDefaults: [{cpuShare: 5}]}",
			"spec.podDefaults[0].selector: no selector cannot be used: write one; {} selects everything"},
		{header + "spec: {batchPods: [{}]}",
			"spec.batchPods[0].selector: no selector cannot be used: write one; {} selects everything"},
		{
			header + "spec: {batchPods: [{selector: {}}, {selector: {}, owners: 101%}]}",
			`spec.batchPods[1].owners: "101%" cannot be used: write a whole percentage from 0% to 100%`,
		},
		{
			header + "spec: {batchPods: [{selector: {}, tier: prod}]}",
			`spec.batchPods[0].tier: "prod" cannot be used: write Batch or Mid`,
		},
		{header + "spec: {weight: {namespaces: [{max: 5}]}}", "spec.weight.namespaces[0].selector: no selector"},
		{header + "spec: {privileges: [{allow: [LSE]}]}", "spec.privileges[0].namespaceSelector: no selector"},
		{header + "spec: {privileges: [{namespaceSelector: {}}]}", "spec.privileges[0].allow: an empty list"},
		{
			header + "spec: {privileges: [{namespaceSelector: {}, allow: [LSE, all]}]}",
			`spec.privileges[0].allow[1]: "all" cannot be used: write UnlimitedQuota or ShareCPUs or `,
		},
		{window("end: 24:00"), `spec.windows[0].end: "24:00" cannot be used: write a time from "00:00" to "23:59"`},
		{window("start: 9:00"), `spec.windows[0].start: "9:00"`},
		{window("name: Night"), `spec.windows[0].name: "Night"`},
		{
			window("timeZone: Europe/Nowhere"),
			`spec.windows[0].timeZone: "Europe/Nowhere" cannot be used: write the name of a time zone, such as Asia/Shanghai`,
		},
		{window("timeZone: Local"), `spec.windows[0].timeZone: "Local"`},
		{window("timeZone: ../UTC"), `spec.windows[0].timeZone: "../UTC"`},
		{
			window("drainBefore: -15m"),
			`spec.windows[0].drainBefore: "-15m0s" cannot be used: write hours, minutes and seconds, such as 15m or 1h30m`,
		},
		{window("drainBefore: '15'"), `missing unit in duration "15"`},
		{
			window("drainBefore: 9h"),
			`spec.windows[0].drainBefore: "9h0m0s" cannot be used: write less than the length of the window`,
		},
		{window("end: 00:00, drainBefore: 1s"), "none where it never ends"},
		{header + "spec: {windows: [{name: a, start: 00:00, end: 01:00, timeZone: UTC}, {name: a, start: 02:00, end: " +
			"03:00, timeZone: UTC}]}",
			`spec.windows[1].name: "a" cannot be used: write another name; an earlier window has this one`},
		{service("max: 0"), `spec.protect.services[0].max: "0" cannot be used: write a decimal above 0, such as "0.020"`},
		{service("max: 20ms"), `spec.protect.services[0].max: "20ms"`},
		{service("max: '-1'"), `spec.protect.services[0].max: "-1"`},
		{service("max: '0.0000001'"), `spec.protect.services[0].max: "0.0000001"`},
		{service("max: '1000000000000'"), `spec.protect.services[0].max: "1000000000000"`},
		{service("selector: null"), "spec.protect.services[0].selector: no selector"},
		{
			service("metric: null"),
			"spec.protect.services[0]: an entry without a figure cannot be used: write metric or prometheus",
		},
		{
			service("prometheus: {url: 'http://p', query: q}"),
			"spec.protect.services[0]: metric and prometheus cannot be used: write only one of them",
		},
		{
			service("metric: {port: 0, name: m}"),
			"spec.protect.services[0].metric.port: 0 cannot be used: write a port from 1 to 65535",
		},
		{
			service("metric: {port: 1}"),
			`spec.protect.services[0].metric.name: "" cannot be used: write the name of a metric`,
		},
		{service("metric: {port: 1, name: m-1}"), `spec.protect.services[0].metric.name: "m-1"`},
		{
			service("metric: {port: 1, name: m, path: metrics}"),
			`spec.protect.services[0].metric.path: "metrics" cannot be used: write a path that begins with /`,
		},
		{service("metric: {port: 1, name: m, path: '/%zz'}"), `spec.protect.services[0].metric.path: "/%zz"`},
		{service("metric: {port: 1, name: m, path: '/a b'}"), `spec.protect.services[0].metric.path: "/a b"`},
		{
			service("metric: {port: 1, name: m, labels: {a-b: c}}"),
			`spec.protect.services[0].metric.labels: "a-b" cannot be used: write the name of a label of a metric`,
		},
		{
			service("metric: {port: 1, name: m, quantile: '99'}"),
			`spec.protect.services[0].metric.quantile: "99" cannot be used: write a decimal between 0 and 1, such as "0.99"`,
		},
		{service("metric: {port: 1, name: m, quantile: '0.0'}"), `spec.protect.services[0].metric.quantile: "0.0"`},
		{service("metric: {port: 1, name: m, quantile: '1.0'}"), `spec.protect.services[0].metric.quantile: "1.0"`},
		{
			service("metric: null, prometheus: {url: 'ftp://p', query: q}"),
			`spec.protect.services[0].prometheus.url: "ftp://p" cannot be used: write an http or https URL without`,
		},
		{
			service("metric: null, prometheus: {url: 'http://a:b@p', query: q}"),
			`spec.protect.services[0].prometheus.url: "http://a:b@p"`,
		},
		{service("metric: null, prometheus: {url: 'http://p?a=b', query: q}"), `prometheus.url: "http://p?a=b"`},
		{
			service("metric: null, prometheus: {url: 'http://p', query: ' '}"),
			`spec.protect.services[0].prometheus.query: " " cannot be used: write a PromQL query`,
		},
		{
			header + "spec: {protect: {services: [" + strings.Repeat("{}, ", 17) + "]}}",
			"spec.protect.services: a list of 17 cannot be used: write at most 16 entries",
		},
		{"{", "reading the policy"},
	} {
		t.Run(c.want, func(t *testing.T) {
			if _, err := ParsePolicy([]byte(c.document)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v, want %q", c.document, err, c.want)
			}
		})
	}
}

// window returns a document with a window from 00:00 to 09:00 of which some fields are replaced.
func window(fields string) string {
	all := map[string]string{"name": "night", "start": "00:00", "end": "09:00", "timeZone": "Asia/Shanghai"}
	for _, f := range strings.Split(fields, ", ") {
		key, value, _ := strings.Cut(f, ": ")
		all[key] = value
	}
	var b strings.Builder
	for key, value := range all {
		b.WriteString(key + ": " + value + ", ")
	}
	return header + "spec: {windows: [{" + b.String() + "}]}"
}

// service returns a document with a figure of services of which some fields are replaced.
func service(fields string) string {
	all := []string{"selector: {}", "metric: {port: 80, name: m}", "max: '1'"}
	kept := slices.DeleteFunc(all, func(field string) bool {
		name, _, _ := strings.Cut(field, ":")
		return strings.Contains(fields, name+":")
	})
	return header + "spec: {protect: {services: [{" + strings.Join(append(kept, fields), ", ") + "}]}}"
}

// TestAllErrors checks that one error reports every wrong field.
func TestAllErrors(t *testing.T) {
	_, err := ParsePolicy([]byte(header + "spec: {mode: all, rollout: {nodes: -1%}, cpu: {mid: 101%}, weight: {max: 0}}"))
	for _, field := range []string{"spec.mode", "spec.rollout.nodes", "spec.cpu.mid", "spec.weight.max"} {
		if err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s is missing in %v", field, err)
		}
	}
}

func TestBatchRules(t *testing.T) {
	p, err := readPolicy([]byte(header +
		"spec: {batchPods: [{selector: {matchLabels: {app: a}}, owners: 0%, tier: Mid}, {selector: {}}]}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []BatchRule{
		{Selector: model.Selector{{Key: "app", Op: model.In, Values: []string{"a"}}}, Tier: model.TierMid},
		{Percent: 100, Tier: model.TierBatch},
	}
	if diff := cmp.Diff(want, BatchRules(p)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestOptedOut checks which labels and annotations of a Node keep Waterline off it.
func TestOptedOut(t *testing.T) {
	const label, annotation = "waterline.io/opt-out", "waterline.io/pause"
	for value, is := range map[string]bool{"true": true, "": true, "no": true, "false": false} {
		for _, key := range []string{label, annotation} {
			var n corev1.Node
			marked := map[string]string{"pool": "web", key: value}
			if key == label {
				n.Labels = marked
			} else {
				n.Annotations = marked
			}
			info, want := NodeOf(&n), ""
			if is {
				want = key
			}
			if got := OptedOut(&info); got != want {
				t.Errorf("%s=%q: opted out by %q", key, value, got)
			}
			n.Labels, n.Annotations = n.Annotations, n.Labels // an annotation opt-out or a label pause is neither
			if info = NodeOf(&n); OptedOut(&info) != "" {
				t.Errorf("%s=%q in the wrong place counts", key, value)
			}
		}
	}
}

// FuzzParsePolicy checks that an accepted document is in range, and that it means the same when it is written again.
func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(header + "spec: {mode: Enforce, weight: {max: 5}}"))
	f.Add([]byte(example))
	f.Add([]byte(service("max: '0.5'")))
	f.Add([]byte(window("end: 06:00, drainBefore: 1h")))
	f.Add([]byte(header +
		"spec: {mode: Disabled, cpu: {method: Static, ratio: 300%}, nodeSelector: {matchExpressions: [{key: a, operator: " +
		"Exists}]}}"))
	f.Fuzz(func(t *testing.T, document []byte) {
		first, err := ParsePolicy(document)
		if err != nil {
			return
		}
		p := &first.Policy
		if p.Weight.Max != 0 && model.ClampShares(p.Weight.Max) != p.Weight.Max || first.Rollout < 0 || first.Rollout > 100 ||
			p.CPU.Waterline < 10 || p.CPU.Waterline > 1000 || p.Memory.Ratio < 0 || p.Memory.Ratio > 1000 ||
			p.Memory.Mid > 1000 {
			t.Errorf("out of range: %+v", first)
		}
		for _, s := range p.Services {
			if s.Max <= 0 || s.Max > model.MaxFigure || (s.Source.Port != 0) == (s.Source.URL != "") ||
				s.Source.Quantile < 0 || s.Source.Quantile >= 1_000_000 {
				t.Errorf("out of range: %+v", s)
			}
		}
		for _, w := range first.Windows {
			if w.DrainBefore < 0 || w.DrainBefore > 0 && w.DrainBefore >= w.Length() {
				t.Errorf("out of range: %+v", w)
			}
		}
		read, err := readPolicy(document)
		if err != nil {
			t.Fatal(err)
		}
		again, err := yaml.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		second, err := ParsePolicy(again)
		if diff := cmp.Diff(first, second, zones); err != nil || diff != "" {
			t.Errorf("%s: %v: -first +second:\n%s", again, err, diff)
		}
	})
}
