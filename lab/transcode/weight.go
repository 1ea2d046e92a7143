package transcode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// explanation is the part of the output of "waterline explain pod NAME -o json" that this experiment needs.
type explanation struct {
	UID   string
	Mode  string
	Files []struct {
		Dir, Knob     string
		Is            *model.Value
		Why, Deferred string
	}
	Notices []string
}

// ExplainWeight returns a function for [Config.Weight] that runs the waterline command, which reads a pod's weight from
// the agent on its node.
func ExplainWeight(waterline, kubeconfig string) func(ctx context.Context, namespace, pod string) (Weight, error) {
	return func(ctx context.Context, namespace, pod string) (Weight, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		args := []string{"explain", "pod", pod, "--namespace", namespace, "--kubeconfig", kubeconfig, "--output", "json"}
		out, err := exec.CommandContext(ctx, waterline, args...).Output()
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			return Weight{}, fmt.Errorf("waterline explain: %w: %s", err, strings.TrimSpace(string(failed.Stderr)))
		}
		if err != nil {
			return Weight{}, fmt.Errorf("waterline explain: %w", err)
		}
		return parseWeight(out)
	}
}

// parseWeight finds the weight of the pod itself, not that of its QoS class.
func parseWeight(text []byte) (Weight, error) {
	var e explanation
	if err := json.Unmarshal(text, &e); err != nil {
		return Weight{}, fmt.Errorf("reading the output of waterline explain: %w", err)
	}
	for _, f := range e.Files {
		// With the systemd driver the directory has the UID with underscores.
		ofPod := strings.Contains(strings.ReplaceAll(path.Base(f.Dir), "_", "-"), e.UID)
		if ofPod && f.Knob == model.Shares.String() && f.Is != nil {
			return Weight{Shares: f.Is.Number, Why: strings.TrimSuffix(f.Why+"; "+f.Deferred, "; ")}, nil
		}
	}
	why := strings.Join(append(e.Notices, "policy "+e.Mode), "; ")
	return Weight{Why: "the agent gives the pods no weight: " + why}, nil
}
