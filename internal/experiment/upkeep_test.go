package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestReadUpkeep(t *testing.T) {
	proc := t.TempDir()
	for pid, stat := range map[string]string{
		"1":    "1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 100 200 5 6 20 0 1 0 1 2\n",
		"20":   "20 (kubelet) S 1 20 20 0 -1 4194560 1 2 3 4 150 50 5 6 20 0 1 0 1 2\n",
		"21":   "21 (containerd-shim) S 1 20 20 0 -1 4194560 1 2 3 4 3 4 5 6 20 0 1 0 1 2\n",
		"30":   "30 (kube-controller) S 1 20 20 0 -1 4194560 1 2 3 4 0 1 5 6 20 0 1 0 1 2\n",
		"31":   "31 (a) etcd (b) S 1 20 20 0 -1 4194560 1 2 3 4 900 1 5 6 20 0 1 0 1 2\n",
		"self": "20 (kubelet) S 1 20 20 0 -1 4194560 1 2 3 4 150 50 5 6 20 0 1 0 1 2\n",
	} {
		dir := filepath.Join(proc, pid)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	used, err := readUpkeep(proc)
	if err != nil || used[nodeUpkeep] != 2070*time.Millisecond || used[clusterUpkeep] != 10*time.Millisecond || len(used) != 2 {
		t.Errorf("%v, %v", used, err)
	}
	if _, err := readUpkeep("/proc"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "1 init S", "1 (init) S 0 1", "1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 x 200 5"} {
		if _, _, err := parseProcess(bad); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}
