package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/model"
)

// AgentName is the name of the agent's executable.
const AgentName = "waterline-agent"

// AgentShares is the weight that the agent gives its own pod.
const AgentShares = 102400

const agentProcess = "the agent"

// FindExecutable returns the path of one of Waterline's executables: the given path, else the file beside this
// executable, else the one in PATH.
func FindExecutable(name, given string) (string, error) {
	if given != "" {
		if _, err := os.Stat(given); err != nil {
			return "", err
		}
		return filepath.Abs(given)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this executable nor in PATH (%w); build it with \"make "+
			"build\"", name, err)
	}
	return filepath.Abs(found)
}

// AgentPod returns the agent's own pod. As in a cluster, the agent knows its pod by the UID and gives it [AgentShares].
func AgentPod() *Pod {
	return &Pod{Name: "agent", QoS: model.Burstable, RequestMilli: 10, Shares: AgentShares, Self: true}
}

// defaultPolicy is the policy of an agent without a --config of its own. It allows what the pods of experiments
// request.
const defaultPolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: experiment}
spec:
  mode: Enforce
  weight: {max: 262144}
  privileges: [{namespaceSelector: {}, allow: [UnlimitedQuota, ShareCPUs, ExclusiveCPUs]}]
`

// StartAgent runs the real agent in a pod, as its DaemonSet does. More arguments may name a policy with --config;
// without one the policy enforces the defaults.
func (s *Sandbox) StartAgent(p *Pod, more ...string) error {
	if err := s.Create(p); err != nil {
		return err
	}
	policy := filepath.Join(s.dir, "default-policy.yaml")
	if err := os.WriteFile(policy, []byte(defaultPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	argv := []string{
		s.agent, "--pods", s.kubelet.manifests, "--kubepods", s.kubelet.layout.Root, "--cgroup-root", s.cfg.root(),
		"--run-dir", s.AgentRunDir(), "--listen", "", "--local", "", "--kubelet", "", "--pod-uid", p.UID(),
		"--config", policy,
	}
	_, err := s.Start(Command{
		Name: agentProcess, Group: s.ContainerGroup(p), OOMScore: p.OOMScore, Program: append(argv, more...),
	})
	return err
}

// AgentRunDir returns the directory with the agent's journal and its undo record.
func (s *Sandbox) AgentRunDir() string { return filepath.Join(s.dir, "run") }

// WithAgentLog adds the end of the agent's log to an error.
func (s *Sandbox) WithAgentLog(err error) error {
	for _, p := range s.processes {
		if p.name == agentProcess {
			return fmt.Errorf("%w; the agent's log: %s", err, p.stderr.String())
		}
	}
	return err
}
