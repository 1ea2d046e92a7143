package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestAPIReach checks what an agent can read of the cluster, with the authorizer of deploy/apiserver: its own node, its
// report and its pods. The API server of every cluster of the test bed has this authorizer, so all other tests show
// that agents need no more.
func TestAPIReach(t *testing.T) {
	c := newConfined(t)
	manager := newUser(t, kubeconfig(t, kubectl(t, "create", "token", "waterline-manager", "-n", "waterline-system")))
	get := func(u user, path string) (string, bool) {
		if strings.Contains(path, "watch") { // it would not end by itself
			path += "&timeoutSeconds=1"
		}
		return u.do(t, http.MethodGet, path, "", "")
	}
	field := func(path, key, operator, value string) string {
		return path + "?fieldSelector=" + key + operator + value
	}
	const (
		all, is    = "/api/v1/pods", "%3D"
		isNot      = "!%3D"
		allNodes   = "/api/v1/nodes"
		allReports = "/apis/waterline.io/v1alpha1/nodereports"
	)
	for _, path := range []string{
		field(all, "spec.nodeName", is, fakeNode),
		field(all, "spec.nodeName", is, fakeNode) + ",status.phase%3DPending",
		field(all, "spec.nodeName", is, fakeNode) + "&watch=true",
		field(allNodes, "metadata.name", is, fakeNode),
		field(allNodes, "metadata.name", is, fakeNode) + "&watch=true",
		field(allReports, "metadata.name", is, fakeNode),
		"/api/v1/namespaces",
		"/apis/waterline.io/v1alpha1/colocationpolicies",
	} {
		if answer, ok := get(c.agent, path); !ok {
			t.Errorf("the agent may not read %s: %.300s", path, answer)
		}
	}
	// The manager has no node. Its ClusterRole does not watch all pods.
	others := []string{
		all, field(all, "spec.nodeName", is, "other"), field(all, "spec.nodeName", isNot, "x"),
		field(all, "metadata.name", is, "mine"), pods + "theirs", strings.TrimSuffix(pods, "/"),
		allNodes, allNodes + "?watch=true", field(allNodes, "metadata.name", is, "other"),
		allReports, field(allReports, "metadata.name", is, "other"),
	}
	for _, path := range others {
		if answer, ok := get(manager, path); !ok {
			t.Errorf("the manager may not read %s: %.300s", path, answer)
		}
	}
	denied := func(who string, u user, path string) {
		if answer, ok := get(u, path); ok || !strings.Contains(answer, "an agent reads its own node") {
			t.Errorf("%s reads %s: %.300s", who, path, answer)
		}
	}
	for _, path := range append(others, all+"?watch=true", "/api/v1/watch/pods?",
		"/api/v1/watch/nodes?", pods+"mine", "/api/v1/watch/namespaces/default/pods/theirs?",
		field(all, "spec.nodeName", is, "other")+"&fieldSelector=spec.nodeName%3D"+fakeNode) {
		denied("the agent", c.agent, path)
	}
	for _, path := range []string{all, field(all, "spec.nodeName", is, fakeNode), field(all, "spec.nodeName", is, ""),
		field(allNodes, "metadata.name", is, fakeNode), field(allReports, "metadata.name", is, fakeNode)} {
		denied("a token without a node", c.nameless, path)
	}
}

// TestAPIReachKubelets checks what a kubelet asks the API server about an agent that reads the kubelet's configuration.
// Only the agent's own kubelet may answer.
func TestAPIReachKubelets(t *testing.T) {
	newFake(t)
	for node, want := range map[string]bool{fakeNode: true, "other": false} {
		review, err := json.Marshal(authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:waterline-system:waterline-agent", Groups: []string{"system:serviceaccounts"},
			Extra: map[string]authorizationv1.ExtraValue{"authentication.kubernetes.io/node-name": {fakeNode}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes",
				Subresource: "configz", Name: node},
		}})
		if err != nil {
			t.Fatal(err)
		}
		answer, ok := newUser(t, bed.Kubeconfig()).do(t, http.MethodPost,
			"/apis/authorization.k8s.io/v1/subjectaccessreviews", "application/json", string(review))
		if !ok || !strings.Contains(answer, fmt.Sprintf(`"allowed":%t`, want)) {
			t.Errorf("the kubelet of %s is told %s, want allowed: %t", node, answer, want)
		}
	}
}

// TestAPIReachCgroups runs the agent with the chart's mounts, as they are by default and for a known directory of pods.
// The agent works with both. With the latter it can write to no cgroup outside of that directory.
func TestAPIReachCgroups(t *testing.T) {
	f := newFake(t)
	top, _, _ := strings.Cut(f.layout.Root, "/")
	version, outside, inside := "1", []string{"cpu/release_agent", "cpuset/release_agent", "memory/release_agent"},
		[]string{"cpu/" + top, "cpuset/" + top, "memory/" + top}
	if f.Version == cgroup.V2 {
		version, outside, inside = "2", []string{"./cgroup.procs"}, []string{"./" + top}
	}
	for name, c := range map[string]struct{ values, writable []string }{
		"all":  {nil, slices.Concat(outside, inside)},
		"pods": {[]string{"--set", "paths.kubepods=" + f.layout.Root + ",paths.cgroupVersion=" + version}, inside},
	} {
		t.Run(name, func(t *testing.T) {
			of := *f
			of.t = t
			root, found := t.TempDir(), filepath.Join(t.TempDir(), "found")
			script := fmt.Sprintf(`%s
cd %s
for at in %s; do if [ -w $at ]; then echo $at; fi; done >%s
exec "$@"`, cgroupMounts(t, root, c.values...), root, strings.Join(slices.Concat(outside, inside), " "), found)
			of.inside = []string{"unshare", "--mount", "sh", "-ec", script, "sh"}
			of.serves = append(of.serves, "--cgroup-root", root)
			of.start()
			of.expect(t, of.pod("a", `waterline.io/cpu-share: "2048"`), model.Shares, 2048)
			writable, err := os.ReadFile(found)
			if d := cmp.Diff(c.writable, strings.Fields(string(writable))); err != nil || d != "" {
				t.Errorf("writable (-want +found): %v\n%s", err, d)
			}
		})
	}
}

// cgroupMounts returns shell commands that mount in a directory what the agent's pod has below /host/cgroup, as
// container runtimes do it.
func cgroupMounts(t *testing.T, root string, values ...string) string {
	t.Helper()
	rendered := helm(t, append([]string{"template", "waterline", "../../deploy/chart", "--kube-version", "v1.36.3",
		"--show-only", "templates/agent.yaml"}, values...)...)
	var set appsv1.DaemonSet
	_, document, _ := strings.Cut(rendered, "apiVersion: apps/v1")
	if err := yaml.UnmarshalStrict([]byte("apiVersion: apps/v1"+document), &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	sources := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			sources[v.Name] = v.HostPath.Path
		}
	}
	var script strings.Builder
	script.WriteString("mount --make-rslave /\n")
	for _, m := range pod.Containers[0].VolumeMounts {
		below, ok := strings.CutPrefix(m.MountPath, "/host/cgroup")
		if !ok {
			continue
		}
		fmt.Fprintf(&script, "mkdir -p %[1]s\nmount --rbind %[2]s %[1]s\n", root+below, sources[m.Name])
		if m.ReadOnly {
			fmt.Fprintf(&script, "mount -o remount,bind,ro %s\n", root+below)
		}
	}
	return script.String()
}
