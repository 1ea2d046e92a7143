// Package agentrun runs the real agent in a sandbox under a policy, and reads the agent's journal.
package agentrun

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// fullPolicy lets batch fill the machine.
const fullPolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: experiment}
spec:
  mode: Enforce
  weight: {max: 262144}
  privileges: [{namespaceSelector: {}, allow: [UnlimitedQuota]}]
  cpu: {waterline: 100%%, method: Realtime, suppression: %s}
`

// Policy returns the text of a policy file. Without a file it returns a policy that lets batch fill the machine and
// suppresses it by a method.
func Policy(file string, by model.SuppressMethod) (string, error) {
	if file == "" {
		return fmt.Sprintf(fullPolicy, by), nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the policy: %w", err)
	}
	return string(content), nil
}

// Start runs an agent under a policy, in a pod, with more arguments than the sandbox gives it.
func Start(s *sandbox.Sandbox, agent *sandbox.Pod, policy string, more ...string) error {
	file := filepath.Join(s.Dir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	if err := s.StartAgent(agent, append(more, "--config", file)...); err != nil {
		return err
	}
	s.AddLoad(agent)
	return nil
}

// AwaitBatch waits until the agent has given batch pods the weights of their batch CPU requests.
func AwaitBatch(ctx context.Context, s *sandbox.Sandbox, batch ...*sandbox.Pod) error {
	for _, p := range batch {
		weighted := *p
		weighted.Shares = model.MilliCPUToShares(p.BatchMilli)
		if err := s.Await(ctx, &weighted); err != nil {
			return err
		}
	}
	return nil
}

// EachRound calls do with each round in the journal of a run directory, oldest first. The last line may be incomplete.
func EachRound(runDir string, do func(*node.Round)) error {
	var failed error
	for round, err := range journal.Read(runDir) {
		if failed != nil {
			return failed // it was not the last line
		}
		if failed = err; err == nil {
			do(&round)
		}
	}
	return nil
}
