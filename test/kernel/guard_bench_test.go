//go:build bench

package kernel_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/poll"
)

// podOfGuard is the script of a pod: its first process is a NodeManager by its arguments, and starts containers of two
// processes each, with environments as long as those of YARN, and then the guard.
const podOfGuard = `n=0
while [ $n -lt $1 ]; do
	n=$((n + 1))
	CONTAINER_ID=$(printf container_1795520061459_0001_01_%06d $n) CLASSPATH=$2 sh -c 'sleep 100000 & wait' &
done
shift 2
"$@" &
wait`

// TestGuardCost measures the CPU time and the resident memory of a guard beside a NodeManager with 40 containers, of
// which nothing is over. They are in a process namespace of their own, as in a pod.
func TestGuardCost(t *testing.T) {
	const containers, settle = 40, 70 * time.Second
	const listen = "127.0.0.1:19469"
	over := 30 * time.Second
	if benchFile() != "" {
		over = 5 * time.Minute
	}
	w := newWorker(t)
	for n := range containers {
		w.list(n + 1)
	}
	server := httptest.NewServer(w)
	defer server.Close()
	err := os.WriteFile(w.allowance, fmt.Appendf(nil, `{"memoryMiB":%d,"vcores":%d}`, containers*1024, containers), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", podOfGuard,
		"org.apache.hadoop.yarn.server.nodemanager.NodeManager", fmt.Sprint(containers), strings.Repeat("x", 4000),
		binary(t, "waterline-guard"), "--allowance="+w.allowance, "--nodemanager="+server.URL, "--cgroup="+w.view(),
		"--listen="+listen)
	c.Stderr = testLog{t}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	pid := 0
	if !poll.Until(time.Minute, 100*time.Millisecond, func() bool {
		pid = child(child(c.Process.Pid, "sh"), "waterline-guard")
		return pid != 0
	}) {
		t.Fatal("the guard does not run")
	}
	time.Sleep(settle) // it has listed containers twice, and looked at processes twice
	var state struct {
		NodeManager int      `json:"nodeManager"`
		Errors      []string `json:"errors"`
		Containers  []struct{ Processes int }
	}
	answer, err := http.Get("http://" + listen + "/state")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&state); err != nil {
		t.Fatal(err)
	}
	processes := 0
	for _, c := range state.Containers {
		processes += c.Processes
	}
	if state.NodeManager != 1 || len(state.Containers) != containers || processes != 2*containers ||
		len(state.Errors) > 0 {
		t.Fatalf("the guard sees %d containers with %d processes beside process %d, and says %q", len(state.Containers),
			processes, state.NodeManager, state.Errors)
	}
	used, began := cpuTime(t, pid), time.Now()
	time.Sleep(over)
	milli := 1000 * (cpuTime(t, pid) - used).Seconds() / time.Since(began).Seconds()
	d := daemon{t: t, pid: pid}
	metrics := map[string]float64{
		"cpu_millicores_40": milli, "rss_mb_40": float64(d.resources().rss) * 1024 / 1e6, "idle_seconds": over.Seconds(),
	}
	t.Logf("%v", metrics)
	if milli == 0 || milli > 20 || metrics["rss_mb_40"] > 32 {
		t.Errorf("want at most what the pool requests for it: 20 mCPU and 32 MB")
	}
	writeFigures(t, w.mount.Version, "guard", metrics)
}

// child returns the child of a process with a name; 0: there is none.
func child(parent int, name string) int {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", parent))
	for _, word := range strings.Fields(string(content)) {
		var pid int
		_, _ = fmt.Sscan(word, &pid)
		comm, _ := os.ReadFile(filepath.Join("/proc", word, "comm")) // its first 15 bytes
		if is := strings.TrimSpace(string(comm)); is != "" && strings.HasPrefix(name, is) {
			return pid
		}
	}
	return 0
}

// cpuTime returns the CPU time of the threads of a process.
func cpuTime(t *testing.T, pid int) (all time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, file := range files {
		var nanos int64
		content, err := os.ReadFile(file)
		if err == nil {
			_, err = fmt.Sscan(string(content), &nanos)
		}
		if err != nil {
			t.Fatal(err)
		}
		all += time.Duration(nanos)
	}
	return all
}
