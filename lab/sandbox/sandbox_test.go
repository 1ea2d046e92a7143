package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestManifests checks that the agent understands the manifests and expects the pods where the stand-in makes their
// cgroups.
func TestManifests(t *testing.T) {
	for _, p := range []*Pod{
		{Name: "weighted", QoS: model.Burstable, RequestMilli: 100, Shares: 8192},
		{Name: "plain", QoS: model.Burstable, RequestMilli: 100},
		{Name: "sure", QoS: model.Guaranteed, RequestMilli: 1000},
		{Name: "alone", QoS: model.Guaranteed, RequestMilli: 1000, CPUs: model.CPUExclusive},
	} {
		t.Run(p.Name, func(t *testing.T) {
			k := kubelet{manifests: t.TempDir()}
			if err := k.announce(p); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(k.manifests, p.Name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var manifest corev1.Pod
			if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			got, ok := kube.Pod(&manifest, "")
			if !ok || got.UID != p.UID() || got.QoS != p.QoS ||
				got.RequestMilli != p.RequestMilli && p.QoS == model.Burstable ||
				got.Annotations.Shares != p.Shares || len(got.Annotations.Notices) > 0 {
				t.Errorf("%+v from\n%s", got, text)
			}
			if got.Annotations.CPUs != p.CPUs || p.CPUs != "" && got.Containers[0].ID != p.hash() {
				t.Errorf("CPU mode %q, container %q, from\n%s", got.Annotations.CPUs, got.Containers[0].ID, text)
			}
			if !cgroup.ValidContainerID(p.hash()) {
				t.Errorf("container id %q", p.hash())
			}
		})
	}
}

func TestCheckUser(t *testing.T) {
	if err := checkUser(0); err != nil {
		t.Error(err)
	}
	if err := checkUser(1000); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("user 1000: %v", err)
	}
}

func TestFindExecutable(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := FindExecutable(AgentName, ""); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("no agent: %v", err)
	}
	if _, err := FindExecutable(AgentName, filepath.Join(dir, "nothing")); err == nil {
		t.Error("found a file that does not exist")
	}
	agent := filepath.Join(dir, AgentName)
	if err := os.WriteFile(agent, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := FindExecutable(AgentName, ""); err != nil || got != agent {
		t.Errorf("%q, %v", got, err)
	}
}

func TestSweep(t *testing.T) {
	parent := t.TempDir()
	const dead = 1 << 30 // above the kernel's greatest pid
	for _, name := range []string{prefix + strconv.Itoa(dead), prefix + strconv.Itoa(os.Getppid()), prefix + "x",
		"other"} {
		if err := os.MkdirAll(filepath.Join(parent, name, "kubepods"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sweep(parent, removeTree)
	left, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 3 {
		t.Errorf("left are %v: exactly that of the dead process should be gone", left)
	}
}

func TestOwnCgroup(t *testing.T) {
	const v1 = "12:cpuset:/\n4:cpu,cpuacct:/user.slice/a:b\n3:memory:/m\n0::/unified\n"
	for _, tc := range []struct {
		content, controller, dir string
		ok                       bool
	}{
		{v1, "cpu", "/user.slice/a:b", true},
		{v1, "cpuacct", "/user.slice/a:b", true},
		{v1, "cpuset", "/", true},
		{v1, "pids", "", false},
		{"0::/user.slice/session-1.scope\n", "", "/user.slice/session-1.scope", true},
		{"0::/../other\n", "", "/../other", false},
	} {
		if dir, ok := ownCgroup(tc.content, tc.controller); dir != tc.dir || ok != tc.ok {
			t.Errorf("%q of %q: %q, %v", tc.controller, tc.content, dir, ok)
		}
	}
}

func TestParseUsage(t *testing.T) {
	for _, tc := range []struct {
		version cgroup.Version
		text    string
		want    time.Duration
	}{
		{cgroup.V1, "1234567\n", 1234567},
		{cgroup.V2, "usage_usec 1234\nuser_usec 1\n", 1234 * time.Microsecond},
	} {
		if got, err := ParseUsage(tc.version, []byte(tc.text)); got != tc.want || err != nil {
			t.Errorf("%q: %v, %v", tc.text, got, err)
		}
		for _, bad := range []string{"", "nr_periods 3\n", "usage_usec x\n"} {
			if _, err := ParseUsage(tc.version, []byte(bad)); err == nil {
				t.Errorf("%v: no error for %q", tc.version, bad)
			}
		}
	}
}

// TestAdopt finds cgroups as kubelets name them, with either driver, and no others.
func TestAdopt(t *testing.T) {
	const uid, container = "0b5e7a1c-1111-4222-8333-444455556666", "4fe1d0aa"
	const slice = "kubepods.slice/kubepods-burstable.slice/"
	for driver, dirs := range map[string][2]string{
		"cgroupfs": {"bed/kubepods/burstable/pod" + uid, "/" + container},
		"systemd": {
			slice + "kubepods-burstable-pod0b5e7a1c_1111_4222_8333_444455556666.slice",
			"/cri-containerd-" + container + ".scope",
		},
	} {
		t.Run(driver, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range []string{dirs[0] + dirs[1], "system.slice/other"} {
				if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			s := &Sandbox{cgroups: cgroups{mount: host.Mount{Path: root}}}
			p := &Pod{Name: "a"}
			if err := s.Adopt(p, uid, container); err != nil {
				t.Fatal(err)
			}
			if s.PodGroup(p) != dirs[0] || s.ContainerGroup(p) != dirs[0]+dirs[1] {
				t.Errorf("pod in %s, container in %s", s.PodGroup(p), s.ContainerGroup(p))
			}
			if err := s.Adopt(p, "another", container); err == nil {
				t.Error("found a pod that does not exist")
			}
		})
	}
}

func TestRunHelper(t *testing.T) {
	var got struct{ Number int }
	helpers := []Helper{{Name: "count", Run: func(in HelperInput) error { return in.Decode(&got) }}}
	if err := RunHelper([]string{"count", `{"Input": {"Number": 7}}`}, helpers); err != nil || got.Number != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, args := range [][]string{nil, {"count"}, {"count", "x"}, {"count", `{"Input": 7}`}, {"other", "{}"}} {
		if err := RunHelper(args, helpers); err == nil {
			t.Errorf("no error for %q", args)
		}
	}
}
