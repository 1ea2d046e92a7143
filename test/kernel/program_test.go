package kernel_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestDoctor checks that the doctor finds and names a second writer.
func TestDoctor(t *testing.T) {
	n := newNode(t)
	a := n.pod(model.Burstable, "a", 500)
	file := n.path(a, cgroup.FileName(n.mount.Version, model.Shares))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	writer := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("while :; do echo 77 > %s; sleep 0.1; done", file))
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = writer.Wait() }()
	out, err := exec.Command(binary(t, "waterline"), "doctor", "--kubepods", n.layout.Root, "--run-dir", t.TempDir(),
		"--seconds", "2").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "BAD   sh wrote cpu.shares") ||
		!strings.Contains(string(out), "a second writer") {
		t.Errorf("%v:\n%s", err, out)
	}
	cancel()
	_ = writer.Wait()
	out, err = exec.Command(binary(t, "waterline"), "doctor", "--kubepods", n.layout.Root, "--run-dir", t.TempDir(),
		"--seconds", "1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "no program wrote a weight or a quota") {
		t.Errorf("without it: %v:\n%s", err, out)
	}
}

// TestReadOnly checks that an agent with a read-only cgroup mount reports that and writes nothing.
func TestReadOnly(t *testing.T) {
	n := newNode(t)
	a := n.pod(model.Burstable, "a", 500)
	manifests, mount, local := t.TempDir(), t.TempDir(), freeAddress(t)
	if err := os.WriteFile(filepath.Join(manifests, "a.yaml"),
		[]byte(`{kind: Pod, metadata: {name: a, uid: a, annotations: {waterline.io/cpu-share: "2048"}}, `+
			`spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	target := mount
	if n.mount.Version == cgroup.V1 {
		target = filepath.Join(mount, "cpu")
		if err := os.Mkdir(target, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The mount is in its own mount namespace and disappears with it.
	script := fmt.Sprintf("mount --bind %s %s && mount -o remount,bind,ro %s && "+
		"exec %s --pods %s --cgroup-root %s --kubepods %s --run-dir %s --listen %s --local %s --config %s",
		n.mount.Path, target, target, binary(t, "waterline-agent"), manifests, mount, n.layout.Root, t.TempDir(),
		freeAddress(t), local, enforcing(t))
	agent := exec.Command("unshare", "-m", "sh", "-c", script)
	var log strings.Builder
	agent.Stderr = &log
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
	explain := func() string {
		out, _ := exec.Command(binary(t, "waterline"), "explain", "pod", "a", "--agent", local).CombinedOutput()
		return string(out)
	}
	within(t, "the reason", func() bool { return strings.Contains(explain(), "not written  ReadOnlyMount") },
		func() string { return explain() + log.String() })
	time.Sleep(100 * time.Millisecond)
	if !n.holds(a, model.Shares, 512) {
		t.Errorf("the weight is %d", n.raw(a, model.Shares))
	}
}

// TestBadStart checks that an agent that cannot work ends at once and reports the reason.
func TestBadStart(t *testing.T) {
	n := newNode(t)
	out, err := exec.Command(binary(t, "waterline-agent"), "--pods", t.TempDir(), "--kubepods", "not/the/right/name",
		"--run-dir", t.TempDir(), "--listen", "", "--local", "", "--cgroup-root", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no CPU controller") {
		t.Errorf("no cgroup file system: %v: %s", err, out)
	}
	out, err = exec.Command(binary(t, "waterline-agent"), "--pods", t.TempDir(), "--config", "/nonexistent", "--run-dir",
		t.TempDir(), "--listen", "", "--local", "").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "reading the policy") {
		t.Errorf("no policy file: %v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	address := freeAddress(t)
	out, err = exec.CommandContext(ctx, binary(t, "waterline-agent"), "--pods", t.TempDir(), "--kubepods", n.layout.Root,
		"--run-dir", t.TempDir(), "--listen", address, "--local", address).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--local: ") || !strings.Contains(string(out), "already in use") {
		t.Errorf("one address for two purposes: %v: %s", err, out)
	}
}
