package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// brimPolicy lets batch fill the machine to the brim.
const brimPolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: experiment}
spec:
  mode: Enforce
  cpu: {waterline: 100%%, method: Realtime, suppression: %s}
`

// methods are the methods of suppression as the policy spells them.
var methods = map[string]model.SuppressMethod{
	"none": model.SuppressByNone, "cpuset": model.SuppressByCpuset, "quota": model.SuppressByQuota, "both": model.SuppressByBoth,
}

// policyText returns the policy in a file, or without one that which lets batch fill the machine and suppresses it by a
// method of the policy.
func policyText(file, by string) (string, error) {
	if file == "" {
		return fmt.Sprintf(brimPolicy, methods[strings.ToLower(by)]), nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the policy: %w", err)
	}
	return string(content), nil
}

// govern starts an agent with a policy, or has that of the node go by it, and waits until batch weighs what it asked for, which is
// the agent's doing.
func (l *lab) govern(ctx context.Context, policy string, batch ...*pod) error {
	agent := agentPod()
	var err error
	if l.cfg.Node == nil {
		err = l.startGoverned(ctx, agent, policy)
	} else {
		err = l.findAgent(ctx, agent)
	}
	if err != nil {
		return err
	}
	l.pods = append(l.pods, agent)
	return l.awaitBatch(ctx, batch...)
}

// awaitBatch waits until batch weighs what it asked for.
func (l *lab) awaitBatch(ctx context.Context, batch ...*pod) error {
	for _, p := range batch {
		weighted := *p
		weighted.shares = model.MilliCPUToShares(p.batchMilli)
		if err := l.await(ctx, &weighted); err != nil {
			return err
		}
	}
	return nil
}

// findAgent finds the agent of a real node, which goes by the policy already: without it batch pods found no place there.
func (l *lab) findAgent(ctx context.Context, agent *pod) error {
	made, err := l.cfg.Node.Agent(ctx)
	if err != nil {
		return err
	}
	return l.locate(agent, made)
}

// startGoverned starts an agent that goes by a policy.
func (l *lab) startGoverned(ctx context.Context, agent *pod, policy string, more ...string) error {
	file := filepath.Join(l.dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	agent.shares = 0 // as in a cluster, it knows its pod
	return l.startAgent(ctx, agent, append(more, "--pod-uid", agent.uid(), "--config", file)...)
}
