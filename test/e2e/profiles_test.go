package e2e_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// showPolicies prints what a test of profiles compares.
const showPolicies = `kubectl get colocationpolicies -o jsonpath='{range .items[*]}{.metadata.name} {.spec.mode} ` +
	`{.spec.priority} {.spec.nodeSelector.matchLabels} {.spec.rollout.nodes}{"\n"}{end}'`

// TestAPIProfiles runs the commands by which pages install, widen and take back profiles, as they are written.
func TestAPIProfiles(t *testing.T) {
	// Each page begins without the release.
	removeRelease(t)
	t.Cleanup(func() { removeRelease(t) })
	apply(t, `{apiVersion: v1, kind: Node, metadata: {name: `+fakeNode+`}}`)

	p := &page{t: t, env: []string{"NODE=" + fakeNode}}
	p.add("README.md", showPolicies)
	p.add("docs/policy.md")
	p.add("docs/profiles.md", showPolicies, "kubectl get nodes -l waterline.io/canary=true -o name")
	p.add("docs/scheduler.md", "kubectl get deployment waterline-scheduler -n waterline-system -o name")
	out := p.run()
	canary := func(mode string) string { return `canary ` + mode + ` -999 {"waterline.io/canary":"true"} ` + "\n" }
	for what, want := range map[string]struct {
		at    int
		value string
	}{
		"the README":   {1, "default Enforce -1000  \n"},
		"a canary":     {5, canary("Enforce") + "default Observe -1000  \n"},
		"the label":    {6, "node/" + fakeNode + "\n"},
		"all nodes":    {8, canary("Enforce") + "default Enforce -1000  100%\n"},
		"the way back": {11, canary("Disabled") + "default Disabled -1000  100%\n"},
		"a scheduler":  {14, "deployment.apps/waterline-scheduler\n"},
	} {
		if len(out) <= want.at || out[want.at] != want.value {
			t.Fatalf("%s: want %q at %d in %q", what, want.value, want.at, out)
		}
	}
}

// TestAPIProfileNotes checks that the notes of each profile name the next command and the way back, and the offers once
// nodes report.
func TestAPIProfileNotes(t *testing.T) {
	makeNamespace(t, "notes", "pod-security.kubernetes.io/enforce: privileged")
	makeNamespace(t, "yarn", "")
	notes := func(values ...string) string {
		t.Helper()
		c := exec.Command(filepath.Join(built, "bin/helm"), append([]string{"install", "waterline", "../../deploy/chart",
			"--namespace", "notes", "--dry-run=server", "--kubeconfig", bed.Kubeconfig()}, values...)...)
		out, err := c.CombinedOutput()
		_, text, found := strings.Cut(string(out), "NOTES:")
		if err != nil || !found {
			t.Fatalf("%v: %v: %s", values, err, out)
		}
		return text
	}
	const share = "waterline.io/cpu-share=10240"
	for profile, word := range map[string]string{"": share, "weights": share, "cpu-share-syncer": share,
		"cpusets": "waterline.io/cpu-manager=exclusive", "sell": "waterline.io/qos: BE", "yarn": "waterline.io/qos: BE"} {
		text := notes("--set", "profile="+profile)
		want := []string{word, "kubectl get nodereports", "--set policy.mode=Enforce,policy.rollout.nodes=10%",
			"\n  waterline status\n", "exec --namespace notes ds/waterline-agent -- waterline explain node\n",
			"--reuse-values --set policy.mode=Disabled\n  helm uninstall waterline --namespace notes\n"}
		if canary := "kubectl label node NODE waterline.io/canary=true"; profile != "" {
			want = append(want, canary)
		} else if strings.Contains(text, canary) {
			t.Errorf("without a profile, the notes speak of canaries:\n%s", text)
		}
		if i := slices.IndexFunc(want, func(w string) bool { return !strings.Contains(text, w) }); i >= 0 {
			t.Errorf("the notes of profile %q lack %q:\n%s", profile, want[i], text)
		}
		if on := notes("--set", "policy.mode=Enforce,profile="+profile); strings.Contains(on, "rollout.nodes") {
			t.Errorf("with profile %q enforced, the notes still say how:\n%s", profile, on)
		}
	}
	for i := range 6 {
		name := fmt.Sprintf("notes-%d", i)
		apply(t, `{apiVersion: waterline.io/v1alpha1, kind: NodeReport, metadata: {name: `+name+`}}`)
	}
	quantity := `{"batch":"7200m","mid":"0"}`
	kubectl(t, "patch", "nodereport", "notes-0", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status":{"selling":"Open","cpu":{"offer":%s,"bound":%[1]s,"allowance":"8","capacity":"16","ceiling":"10",`+
			`"system":"1","online":"1","peaks":{"hour":"2","day":"2"}}}}`, quantity))
	text := notes("--set", "profile=sell")
	if !strings.Contains(text, "6 nodes report") || !strings.Contains(text, "notes-0  7200m CPUs  0") ||
		strings.Contains(text, "notes-5") {
		t.Errorf("the notes lack the offer of the first nodes:\n%s", text)
	}
}
