package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/internal/model"
)

// ReadKubelet reads the configuration of a kubelet from a URL such as https://10.0.0.7:10250/configz. The client must
// authenticate itself; it needs the verb get on nodes/configz and no other right. With an error that only somebody can
// correct, the result says how.
func ReadKubelet(ctx context.Context, client *http.Client, url string) (model.Kubelet, error) {
	k, err := readKubelet(ctx, client, url)
	if err != nil {
		k.Unread = KubeletFix(err.Error())
	}
	return k, err
}

// KubeletFix returns how somebody corrects an error of [ReadKubelet]; "" if another attempt may succeed by itself.
func KubeletFix(err string) string {
	switch {
	case strings.Contains(err, "x509:"), strings.Contains(err, "tls:"):
		return "the kubelet's serving certificate is self-signed, as on kind and kubeadm: set " +
			"agent.kubeletInsecureTLS=true in the chart, or serverTLSBootstrap: true in the kubelet's configuration " +
			"and approve its requests"
	case strings.Contains(err, " 403 "):
		return "Kubernetes 1.32 shows the kubelet's settings to nodes/proxy only: set agent.kubeletProxy=true in the " +
			"chart, or the kubelet's feature gate KubeletFineGrainedAuthz; until then the kubelet's defaults count"
	case strings.Contains(err, " 401 "):
		return "let the kubelet authenticate ServiceAccounts: authentication.webhook.enabled: true in its configuration"
	}
	return ""
}

func readKubelet(ctx context.Context, client *http.Client, url string) (model.Kubelet, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return model.Kubelet{}, fmt.Errorf("requesting the kubelet's configuration: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return model.Kubelet{}, fmt.Errorf("requesting the kubelet's configuration: %w", err)
	}
	defer response.Body.Close()
	const enough = 1 << 20
	body, err := io.ReadAll(io.LimitReader(response.Body, enough))
	if err != nil {
		return model.Kubelet{}, fmt.Errorf("reading the kubelet's configuration: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return model.Kubelet{}, fmt.Errorf("requesting the kubelet's configuration: %s from %s: %.200q",
			response.Status, url, body)
	}
	return parseKubelet(body)
}

// parseKubelet reads the response of /configz. Absent fields have the kubelet's defaults.
func parseKubelet(body []byte) (model.Kubelet, error) {
	var answer struct {
		Config *struct {
			CPUCFSQuota        *bool             `json:"cpuCFSQuota"`
			CPUCFSQuotaPeriod  *metav1.Duration  `json:"cpuCFSQuotaPeriod"`
			CgroupsPerQOS      *bool             `json:"cgroupsPerQOS"`
			CPUManagerPolicy   string            `json:"cpuManagerPolicy"`
			ReservedSystemCPUs string            `json:"reservedSystemCPUs"`
			KubeReserved       map[string]string `json:"kubeReserved"`
			SystemReserved     map[string]string `json:"systemReserved"`
			FeatureGates       map[string]bool   `json:"featureGates"`

			MemoryReservationPolicy string   `json:"memoryReservationPolicy"`
			MemoryThrottlingFactor  *float64 `json:"memoryThrottlingFactor"`
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return model.Kubelet{}, fmt.Errorf("reading the kubelet's configuration: %w", err)
	}
	if answer.Config == nil {
		return model.Kubelet{}, fmt.Errorf("reading the kubelet's configuration: no kubeletconfig in %.200q", body)
	}
	k := DefaultKubelet()
	c := answer.Config
	if c.CPUCFSQuota != nil {
		k.CFSQuota = *c.CPUCFSQuota
	}
	if c.CPUCFSQuotaPeriod != nil && c.CPUCFSQuotaPeriod.Duration > 0 {
		k.QuotaPeriod = int64(c.CPUCFSQuotaPeriod.Duration / time.Microsecond)
	}
	k.NoPodCgroups = c.CgroupsPerQOS != nil && !*c.CgroupsPerQOS
	k.StaticCPUs = c.CPUManagerPolicy == "static"
	gate, set := c.FeatureGates["MemoryQoS"]
	k.MemoryQoS = protects(gate, set, c.FeatureGates["AllAlpha"], c.MemoryReservationPolicy, c.MemoryThrottlingFactor)
	var err error
	if k.ReservedCPUs, err = model.ParseCPUs(c.ReservedSystemCPUs); err != nil {
		return model.Kubelet{}, fmt.Errorf("reading the kubelet's configuration: reservedSystemCPUs: %w", err)
	}
	reservations := map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved}
	for field, reserved := range reservations {
		cpu, err := reservation(reserved, "cpu", model.MaxCPUs)
		memory, memErr := reservation(reserved, "memory", maxReservedMemory)
		if err := errors.Join(err, memErr); err != nil {
			return model.Kubelet{}, fmt.Errorf("reading the kubelet's configuration: %s: %w", field, err)
		}
		k.ReservedMilli += cpu.MilliValue()
		k.ReservedMemory += memory.Value()
	}
	return k, nil
}

// protects reports whether a kubelet protects or slows down memory itself. Its gate is off by default up to 1.36,
// where the factor has a default and counts only with the gate. It is on by default from 1.37 on, where the factor
// has none, and does nothing until the policy or the factor is set (KEP 2570). A policy is refused while the gate is
// off. A factor alone, without the gate, may be that default: what it does to containers shows in their cgroups.
func protects(gate, set, allAlpha bool, policy string, factor *float64) bool {
	switch {
	case set && !gate:
		return false
	case policy != "" && policy != "None":
		return true
	case set || allAlpha:
		return factor != nil
	}
	return false
}

// maxReservedMemory is more than any machine has, in bytes.
const maxReservedMemory = 1 << 50

// reservation returns an amount of a reservation, which is from 0 to a maximum.
func reservation(reserved map[string]string, name string, maximum int64) (*resource.Quantity, error) {
	text, found := reserved[name]
	if !found {
		return &resource.Quantity{}, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return &resource.Quantity{}, fmt.Errorf("%s: %.64q: %w", name, text, err)
	}
	if quantity.Sign() < 0 || quantity.CmpInt64(maximum) > 0 {
		return &resource.Quantity{}, fmt.Errorf("%s: %.64q is not from 0 to %d", name, text, maximum)
	}
	return &quantity, nil
}

// DefaultKubelet returns the settings of a kubelet whose configuration has only defaults.
func DefaultKubelet() model.Kubelet {
	return model.Kubelet{Known: true, CFSQuota: true, QuotaPeriod: model.DefaultQuotaPeriod}
}
