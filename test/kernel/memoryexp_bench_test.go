//go:build bench

package kernel_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/lab/memory"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// TestMemoryExperiment runs lab memory in short. With protect.memory, its server loses less memory to batch than
// without, and is not killed. The number of answers depends on time, which means nothing here.
func TestMemoryExperiment(t *testing.T) {
	n := newNode(t) // or skip
	cfg := memory.Config{Config: sandboxConfig(t, "lab"), Seconds: 8}
	if n.mount.Version == cgroup.V1 {
		t.Skip("live kernel: cgroup v1 protects no memory")
	}
	liveKernel(t, "TestProtectWorkingSet shows on cgroup v2 what the protection does")
	first, second := ramDisks(t)
	cfg.Disks = []string{first, second}
	if soak() {
		cfg.Seconds = 0
	}
	// If the machine stands still for seconds, batch may cause a shortage too late, or all at once.
	retry(t, 3, func() (map[string]float64, string) {
		m := memoryExperiment(t, cfg)
		if m["plain_refaults_pages"] < enoughRefaults && !soak() {
			cfg.Seconds *= 2
		}
		return m, memoryWrong(m)
	})
}

const enoughRefaults = 50 // pages, to show any difference

// memoryWrong returns the error of a result; "": none.
func memoryWrong(m map[string]float64) string {
	for _, mode := range []string{"alone_", "roomy_", "plain_", "waterline_"} {
		if m[mode+"requests"] < 50 || m[mode+"online_oom_kills"] != 0 {
			return fmt.Sprintf("%s: %v requests, killed %v times", mode, m[mode+"requests"], m[mode+"online_oom_kills"])
		}
		if worked := m[mode+"batch_work_mib"]; worked < 30 != (mode == "alone_") {
			return fmt.Sprintf("%s: batch read and allocated %v MiB", mode, worked)
		}
	}
	// The virtual machine has a little less memory than both need in the end.
	if m["alone_refaults_pages"] != 0 || 2*m["roomy_refaults_pages"] > m["plain_refaults_pages"] ||
		m["plain_refaults_pages"] < enoughRefaults {
		return fmt.Sprintf("alone %v pages were read again, with room %v, beside batch %v: too few to prove protection",
			m["alone_refaults_pages"], m["roomy_refaults_pages"], m["plain_refaults_pages"])
	}
	if m["waterline_refaults_pages"] > m["plain_refaults_pages"]/2 {
		return fmt.Sprintf("with protection %v pages were read again, without %v", m["waterline_refaults_pages"],
			m["plain_refaults_pages"])
	}
	return ""
}

func memoryExperiment(t *testing.T, cfg memory.Config) map[string]float64 {
	t.Helper()
	r, err := memory.Run(t.Context(), cfg)
	if errors.Is(err, sandbox.ErrUnusable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s\n%v", r.Headline, r.Table, r.Series)
	return r.Metrics
}
