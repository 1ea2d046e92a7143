package e2e_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/poll"
)

const fakeNode = "fake"

// fake is a node without a kubelet. Its object is in the API, and the test makes the cgroups of its pods. The agent
// runs outside of the cluster, with the rights of its ServiceAccount.
type fake struct {
	groups
	t      *testing.T
	node   string
	layout cgroup.Layout
	config string // kubeconfig of the agent
	runDir string
	serves []string // address of the agent, as in its flags
	inside []string // command that runs the agent with its arguments; nil: none does
	// the agent; empty: this version's
	program string
}

func newFake(t *testing.T) *fake {
	t.Helper()
	apply(t, `{apiVersion: v1, kind: Node, metadata: {name: `+fakeNode+`}}`)
	// The rights of the chart's ServiceAccount, and no others.
	installChart(t, "--set-json", enforceAll,
		"--set-json", `agent.nodeSelector={"nowhere":"true"}`, "--set-json", `policy.weight.namespaces=[]`)
	t.Cleanup(func() { helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--wait") })
	f := fakeAt(t, fakeNode)
	f.serves = []string{"--listen", "127.0.0.1:19464", "--local", "127.0.0.1:19465"}
	return f
}

// fakeAt makes the cgroups of a node whose object exists, and the files that its agent needs.
func fakeAt(t *testing.T, node string) *fake {
	t.Helper()
	runDir, err := os.MkdirTemp("/dev/shm", "waterline-test-") // in memory, like /run
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{groups: newGroups(t), t: t, node: node, runDir: runDir, serves: []string{"--listen=", "--local="}}
	t.Cleanup(func() {
		if f.program == "" { // another version may decide otherwise
			keepJournal(t, here{}, runDir)
		}
		_ = os.RemoveAll(runDir)
	})
	top := fmt.Sprintf("waterline-test-%d-%s", os.Getpid(), node)
	f.layout = cgroup.Layout{Driver: cgroup.Cgroupfs, Root: top + "/kubepods"}
	t.Cleanup(func() { _ = f.rmdir(top) })
	f.mkdir(f.layout.Class(model.Burstable))
	f.mkdir(f.layout.Class(model.BestEffort))
	// relative to the rest of the machine, like kubepods
	f.set(t, top, model.Shares, int64(runtime.NumCPU())*model.SharesPerCPU)
	kubectl(t, "patch", "node", node, "--subresource=status", "--type=merge", "-p",
		`{"status":{"allocatable":{"cpu":"8"},"capacity":{"cpu":"8"}}}`)
	f.config = kubeconfig(t, agentToken(t, node))
	return f
}

// agentToken returns a token of the agents' ServiceAccount that names a node, like the token in an agent's pod. With ""
// it names no node.
func agentToken(t testing.TB, node string) string {
	t.Helper()
	args := []string{"create", "token", "waterline-agent", "-n", "waterline-system"}
	if node != "" {
		uid := object[corev1.Node](t, "node", node).UID
		args = append(args, "--bound-object-kind=Node", "--bound-object-name="+node, "--bound-object-uid="+string(uid))
	}
	return kubectl(t, args...)
}

// kubeconfig returns a file with which a client uses the bed's API server with a token.
func kubeconfig(t testing.TB, token string) string {
	t.Helper()
	admin, err := os.ReadFile(bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(admin), "users:")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := before + "users: [{name: user, user: {token: " + token +
		"}}]\ncontexts: [{name: bed, context: {cluster: bed, user: user}}]\ncurrent-context: bed\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// mkdir makes a cgroup and its ancestors, in all hierarchies. Like runc, it copies the CPUs and memory of the parent
// where CPU sets have their own hierarchy. Without them, no process can enter the cgroup.
func (f *fake) mkdir(dir string) {
	f.t.Helper()
	path := filepath.Join(f.Path, dir)
	if _, err := os.Stat(path); err == nil {
		return
	}
	f.mkdir(filepath.Dir(dir))
	for _, hierarchy := range f.others() {
		if err := os.Mkdir(filepath.Join(hierarchy, dir), 0o755); err != nil {
			f.t.Fatal(err)
		}
		if hierarchy != f.Cpusets {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			above, err := os.ReadFile(filepath.Join(hierarchy, filepath.Dir(dir), file))
			if err == nil {
				err = os.WriteFile(filepath.Join(hierarchy, dir, file), above, 0)
			}
			if err != nil {
				f.t.Fatal(err)
			}
		}
	}
	// The agent looks for pods in this hierarchy. When it finds one there, the others must have it.
	if err := os.Mkdir(path, 0o755); err != nil {
		f.t.Fatal(err)
	}
}

// others returns the hierarchies except that of the CPU controller.
func (f *fake) others() []string {
	var all []string
	for _, hierarchy := range []string{f.Cpusets, f.Cpuacct, f.Memory} {
		if hierarchy != "" && hierarchy != f.Path && !slices.Contains(all, hierarchy) {
			all = append(all, hierarchy)
		}
	}
	return all
}

// rmdir removes a cgroup and all cgroups below it.
func (f *fake) rmdir(dir string) error {
	err := rmdirAt(filepath.Join(f.Path, dir))
	for _, hierarchy := range f.others() {
		err = errors.Join(err, rmdirAt(filepath.Join(hierarchy, dir)))
	}
	return err
}

func rmdirAt(path string) error {
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, rmdirAt(filepath.Join(path, e.Name())))
		}
	}
	return errors.Join(err, os.Remove(path))
}

// pod makes a Burstable pod of half a CPU in the API, bound to the node, and its cgroup. It returns the cgroup.
func (f *fake) pod(name string, annotations string) string {
	f.t.Helper()
	return f.podIn("default", name, annotations)
}

func (f *fake) podIn(namespace, name, annotations string) string {
	f.t.Helper()
	apply(f.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: %s, annotations: {%s}}
spec:
  nodeName: %s
  containers: [{name: c, image: none, resources: {requests: {cpu: 500m}}}]
`, namespace, name, annotations, f.node))
	pod := object[corev1.Pod](f.t, "pod", name, "-n", namespace)
	dir := f.layout.Pod(model.Burstable, string(pod.UID))
	f.mkdir(dir)
	f.set(f.t, dir, model.Shares, 512)
	return dir
}

// process is one of our programs, running.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts an agent for the node. It ends with the test.
func (f *fake) start() *process {
	f.t.Helper()
	a := &process{t: f.t, log: &lockedBuffer{}, done: make(chan error, 1)}
	program := cmp.Or(f.program, filepath.Join(built, "bin/waterline-agent"))
	args := slices.Concat(f.inside, []string{program, "--node-name", f.node,
		"--kubeconfig", f.config, "--kubepods", f.layout.Root, "--run-dir", f.runDir}, f.serves)
	a.cmd = exec.Command(args[0], args[1:]...)
	a.cmd.Stderr = a.log
	if err := a.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() { a.done <- a.cmd.Wait() }()
	f.t.Cleanup(func() {
		a.stop(os.Kill)
		if f.t.Failed() {
			f.t.Logf("the agent's log:\n%s", a.log)
		}
	})
	return a
}

func (a *process) stop(signal os.Signal) {
	if a.done == nil {
		return
	}
	_ = a.cmd.Process.Signal(signal)
	ended := func() bool {
		select {
		case <-a.done:
			return true
		default:
			return false
		}
	}
	if !poll.Until(3*time.Minute, 10*time.Millisecond, ended) {
		a.t.Errorf("%s does not end after %v; its log has where it hangs", a.cmd.Path, signal)
		_ = a.cmd.Process.Signal(syscall.SIGQUIT)
		<-a.done
	}
	a.done = nil
}

// TestAPI walks a pod through its life with a real API server.
func TestAPI(t *testing.T) {
	f := newFake(t)
	f.start()
	a := f.pod("a", `iqiyi.com/cpu-share: "2048"`)
	f.expect(t, a, model.Shares, 2048)
	f.expect(t, f.layout.Class(model.Burstable), model.Shares, 2048)

	kubectl(t, "annotate", "pod", "a", "--overwrite", "iqiyi.com/cpu-share=4096")
	f.expect(t, a, model.Shares, 4096)

	explains(t, []string{"pod", "a", "--agent", "127.0.0.1:19465"}, []string{"Weighted requested=4096shares", "SumOfPods"})

	kubectl(t, "annotate", "pod", "a", "iqiyi.com/cpu-share-")
	f.expect(t, a, model.Shares, 512)
}

// TestAPIEvents checks that bad input is reported once, with advice, also across a restart of the agent.
func TestAPIEvents(t *testing.T) {
	f := newFake(t)
	a := f.start()
	f.pod("bad", `waterline.io/cpu-share: "lots"`)
	events := func() []corev1.Event {
		return object[corev1.EventList](t, "events", "--field-selector", "involvedObject.name=bad,reason=BadAnnotation").Items
	}
	eventually(t, "an event", func() (bool, string) { return len(events()) == 1, fmt.Sprint(len(events())) })
	e := events()[0]
	for _, want := range []string{"waterline.io/cpu-share", `"lots"`, "integer from 2 to 262144"} {
		if e.Type != corev1.EventTypeWarning || !strings.Contains(e.Message, want) {
			t.Errorf("the event is %s %q, without %q", e.Type, e.Message, want)
		}
	}
	a.stop(os.Kill)
	f.start()
	kubectl(t, "label", "pod", "bad", "touched=yes")
	good := f.pod("good", `waterline.io/cpu-share: "2048"`) // when this write is done, the agent has read the other one
	f.expect(t, good, model.Shares, 2048)
	time.Sleep(time.Second)
	if n := len(events()); n != 1 {
		t.Errorf("after a restart there are %d events", n)
	}
}

// TestAPIGreedy checks a tenant who gives all of its pods the highest weight. The pods have no more than the policy
// allows in their namespace, and the agent reports that once.
func TestAPIGreedy(t *testing.T) {
	f := newFake(t)
	apply(t, `
{apiVersion: v1, kind: Namespace, metadata: {name: greedy, annotations: {waterline.io/cpu-share: "262144"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: video, labels: {team: video}}}
---
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: bounded}
spec: {mode: Enforce, weight: {max: 16384, namespaces: [{selector: {matchLabels: {team: video}}, max: 262144}]}}
`)
	for _, namespace := range []string{"greedy", "video"} {
		eventually(t, "an account for pods in "+namespace, func() (bool, string) {
			out, err := tryKubectl("get", "serviceaccount", "default", "-n", namespace)
			return err == nil, out
		})
	}
	f.start()
	greedy := f.podIn("greedy", "a", `waterline.io/cpu-share: "262144"`)
	video := f.podIn("video", "a", `waterline.io/cpu-share: "262144"`)
	f.expect(t, video, model.Shares, 262144)
	f.expect(t, greedy, model.Shares, 16384)
	events := func(namespace string) []corev1.Event {
		return object[corev1.EventList](t, "events", "-n", namespace, "--field-selector", "reason=WeightClamped").Items
	}
	eventually(t, "an event", func() (bool, string) {
		return len(events("greedy")) == 1,
			fmt.Sprint(len(events("greedy")))
	})
	if n := len(events("video")); n != 0 {
		t.Errorf("%d events about a pod with an allowed weight, want none", n)
	}
	kubectl(t, "label", "namespace", "video", "team-")
	f.expect(t, video, model.Shares, 16384)
}

// TestAPIAway checks that the agent works while the API server is down, can start while it is, and hears of changes
// when it is back.
func TestAPIAway(t *testing.T) {
	f, dir := away(t)
	kubectl(t, "annotate", "pod", "a", "--overwrite", "waterline.io/cpu-share=4096")
	f.expect(t, dir, model.Shares, 4096)
}

// away returns a node whose API server was down and is back, and the cgroup of its pod.
func away(t *testing.T) (f *fake, dir string) {
	t.Helper()
	f = newFake(t)
	a := f.start()
	dir = f.pod("a", `waterline.io/cpu-share: "2048"`)
	f.expect(t, dir, model.Shares, 2048)

	writes := 4
	if soak {
		writes = 120
	}
	control(t, "kill", "apiserver")
	f.set(t, dir, model.Shares, 77)
	f.expect(t, dir, model.Shares, 2048)
	t.Log("the agent starts without the API server, and keeps the last weights")
	a.stop(os.Kill)
	f.set(t, dir, model.Shares, 77)
	f.start()
	f.expect(t, dir, model.Shares, 2048)
	for range writes {
		f.set(t, dir, model.Shares, 77)
		f.expect(t, dir, model.Shares, 2048)
		time.Sleep(5 * time.Second)
	}
	startAPI(t)
	return f, dir
}
