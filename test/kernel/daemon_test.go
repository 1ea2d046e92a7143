package kernel_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stage is a shell in its own namespaces. Faults that must not affect the rest of the machine are made there. Their
// traces, such as mounts, disappear with the stage.
type stage struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

// newStage starts a shell under unshare with these flags. It ends with the test and with this process.
func newStage(t *testing.T, flags ...string) *stage {
	t.Helper()
	const script = `while read -r line; do eval "$line" 2>&1; echo "=$?"; done`
	cmd := exec.Command("unshare", append(flags, "sh", "-c", script)...)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil {
		t.Fatal(inErr, outErr)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &stage{t: t, in: in, out: bufio.NewScanner(out)}
}

// try runs a line of shell and returns its output and its exit code.
func (s *stage) try(format string, args ...any) (string, int) {
	s.t.Helper()
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	var printed strings.Builder
	for s.out.Scan() {
		if text, end := strings.CutPrefix(s.out.Text(), "="); end {
			code, err := strconv.Atoi(text)
			if err != nil {
				s.t.Fatalf("%s: %q", line, s.out.Text())
			}
			return strings.TrimSpace(printed.String()), code
		}
		fmt.Fprintln(&printed, s.out.Text())
	}
	s.t.Fatalf("%s: the shell has ended: %v", line, s.out.Err())
	return "", 0
}

// do is try for a line that must succeed.
func (s *stage) do(format string, args ...any) string {
	s.t.Helper()
	out, code := s.try(format, args...)
	if code != 0 {
		s.t.Fatalf("%s: exit code %d: %s", fmt.Sprintf(format, args...), code, out)
	}
	return out
}

// daemon is an agent in its own process, with its log and its exit code.
type daemon struct {
	t      *testing.T
	pid    int
	log    string // file
	listen string
	local  string
	over   bool
	wait   func() string // waits for its end; returns the exit code
}

// arguments returns the command line of an agent for this node, and its daemon. The node is large, so that the agent
// scales down no weight of a test.
func (n *testNode) arguments(manifests, runDir string, more ...string) (*daemon, []string) {
	n.t.Helper()
	t := n.t.(*testing.T)
	d := &daemon{t: t, log: filepath.Join(t.TempDir(), "log"), listen: freeAddress(t), local: freeAddress(t)}
	return d, append([]string{
		binary(t, "waterline-agent"), "--pods", manifests, "--kubepods", n.layout.Root, "--run-dir", runDir,
		"--listen", d.listen, "--local", d.local, "--allocatable-millicores", "256000", "--config", enforcing(t),
	}, more...)
}

// enforcing returns a file with a policy in mode Enforce. Without a policy, an agent only observes. Of several --config
// flags, the last one counts.
func enforcing(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "enforce.yaml")
	const policy = `{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, metadata: {name: test}, spec: {
mode: Enforce, weight: {max: 262144},
privileges: [{namespaceSelector: {},
  allow: [UnlimitedQuota, ShareCPUs, ExclusiveCPUs, LSE, LSR, SYSTEM, NeverEvict, StaticPod]}]}}`
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// addresses counts the addresses that this process has handed out or passed over.
var addresses atomic.Int64

// freeAddress returns an address on which no process listens. No other caller gets it: the IP address is that of this
// process. The port is below those that the kernel chooses itself, so it is still free when an agent listens there.
func freeAddress(t *testing.T) string {
	t.Helper()
	for pid := os.Getpid(); ; {
		address := fmt.Sprintf("127.%d.%d.1:%d", pid>>8&0xff, pid&0xff, 10_000+addresses.Add(1))
		l, err := net.Listen("tcp", address)
		if err == nil {
			l.Close()
			return address
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// daemon starts an agent, which ends with the test.
func (n *testNode) daemon(manifests, runDir string, more ...string) *daemon {
	n.t.Helper()
	d, argv := n.arguments(manifests, runDir, more...)
	return d.start(exec.Command(argv[0], argv[1:]...))
}

// daemonIn starts an agent in a group.
func (n *testNode) daemonIn(dir, manifests, runDir string, more ...string) *daemon {
	n.t.Helper()
	d, argv := n.arguments(manifests, runDir, more...)
	return d.start(n.commandIn(dir, argv...))
}

// commandIn returns a command that runs in a group.
func (n *testNode) commandIn(dir string, argv ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, n.path(dir, "cgroup.procs")},
		argv...)...)
}

func (d *daemon) start(cmd *exec.Cmd) *daemon {
	d.t.Helper()
	log, err := os.Create(d.log)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.pid = cmd.Process.Pid
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	d.wait = func() string { <-done; return strconv.Itoa(cmd.ProcessState.ExitCode()) }
	d.t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	return d
}

// daemon starts an agent on the stage. It ends with the stage.
func (s *stage) daemon(n *testNode, manifests, runDir string, more ...string) *daemon {
	s.t.Helper()
	d, argv := n.arguments(manifests, runDir, more...)
	pid, err := strconv.Atoi(s.do("%s 2>>%s & echo $!", strings.Join(argv, " "), d.log))
	if err != nil {
		s.t.Fatal(err)
	}
	d.pid = pid
	d.wait = func() string { return s.do("wait %d; echo $?", pid) }
	s.t.Cleanup(func() {
		if !d.over {
			d.end(unix.SIGKILL)
		}
	})
	return d
}

// end sends the agent a signal that ends it, and returns its exit code.
func (d *daemon) end(signal unix.Signal) string {
	d.t.Helper()
	if err := unix.Kill(d.pid, signal); err != nil {
		d.t.Errorf("the agent had ended: %v", err)
	}
	d.over = true
	return d.wait()
}

// text returns the agent's log.
func (d *daemon) text() string {
	content, _ := os.ReadFile(d.log)
	return string(content)
}

// logged counts the log lines that contain all of these words.
func (d *daemon) logged(words string) int {
	n := 0
	for line := range strings.Lines(d.text()) {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

// mostFailures is the most lines about failures of one operation in a test. The agent logs the next one a minute later,
// so a machine that is slow for minutes has some.
const mostFailures = 10

// lines counts the log lines, without repetitions. The agent logs a failure that comes and goes again after a minute by
// its own clock, and not earlier. lines checks that too, and that no operation failed again and again.
func (d *daemon) lines() (count int) {
	d.t.Helper()
	failed := map[string]time.Time{} // operation → time of its last failure in the log
	failures, recoveries := map[string]int{}, map[string]int{}
	for text := range strings.Lines(d.text()) {
		var line struct {
			Time           time.Time
			Msg, Operation string
		}
		_ = json.Unmarshal([]byte(text), &line) // anything else counts as well
		switch line.Msg {
		case "failed":
			if failures[line.Operation]++; failures[line.Operation] > 1 {
				if pause := line.Time.Sub(failed[line.Operation]); pause < 59*time.Second {
					d.t.Errorf("the agent logged another failure after %s: %s", pause, text)
				}
				count--
			}
			if failures[line.Operation] == mostFailures+1 {
				d.t.Errorf("the agent logged failures of %q more than %d times", line.Operation, mostFailures)
			}
			failed[line.Operation] = line.Time
		case "recovered":
			if recoveries[line.Operation]++; recoveries[line.Operation] > failures[line.Operation] {
				d.t.Errorf("the agent logged more recoveries than failures: %s", text)
			}
			if recoveries[line.Operation] > 1 {
				count--
			}
		}
		count++
	}
	return count
}

// cpu returns the CPU time that the agent has used.
func (d *daemon) cpu() time.Duration {
	d.t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(d.pid), "stat"))
	if err != nil {
		d.t.Fatalf("the agent has ended: %v; its log: %s", err, d.text())
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the third field begins here
	fields := strings.Fields(rest)
	var ticks int64
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			d.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 on every Linux system that Go supports
}

// metric returns the sum of the series of one of the agent's metrics that have these labels, given as name, value, ...
// An agent whose loop waits for seconds publishes none.
func (d *daemon) metric(name string, labels ...string) float64 {
	d.t.Helper()
	code, body := d.get(d.listen, "/metrics")
	within(d.t, "metrics", func() bool {
		if code != http.StatusOK {
			code, body = d.get(d.listen, "/metrics")
		}
		return code == http.StatusOK
	}, func() string { return fmt.Sprintf("%d %s; the agent's log: %s", code, body, d.text()) })
	var sum float64
	for line := range strings.Lines(body) {
		rest, ours := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ours || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for i := 0; i < len(labels); i += 2 {
			ours = ours && strings.Contains(rest, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
		}
		if !ours {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			d.t.Fatalf("metrics: %s: %v", line, err)
		}
		sum += value
	}
	return sum
}

// get queries the agent. The code is 0 while the agent does not listen.
func (d *daemon) get(address, path string) (code int, body string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	request.Close = true // otherwise the connection would count as an open file of the agent
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(content)
}

// ready waits until the agent is ready.
func (d *daemon) ready() {
	d.t.Helper()
	var code int
	var body string
	within(d.t, "ready", func() bool { code, body = d.get(d.listen, "/readyz"); return code == http.StatusOK },
		func() string { return body + "; " + d.text() })
}

// explain returns the agent's explanation of a pod, on one line.
func (d *daemon) explain(pod string) string {
	_, body := d.get(d.local, "/explain?namespace=default&pod="+pod)
	return body
}

// finish ends the agent like a kubelet. It checks that the agent had not ended before, did not panic, and logged at
// most this many lines, without those that it may repeat.
func (d *daemon) finish(lines int) {
	d.t.Helper()
	if code := d.end(unix.SIGTERM); code != "0" {
		d.t.Errorf("the agent ended with code %s", code)
	}
	log := d.text()
	if strings.Contains(log, "panic") || strings.Contains(log, "DATA RACE") {
		d.t.Error("the agent panicked")
	}
	if got := d.lines(); got > lines {
		d.t.Errorf("the agent logged %d lines, want at most %d", got, lines)
	}
	if d.t.Failed() {
		d.t.Logf("the agent's log: %s", log[:min(len(log), 20_000)])
	}
}

// manifest announces a Burstable pod with two containers. Its annotation has these shares; 0: no annotation. Further
// annotations can be added. The file is renamed into place, because these tests are not about half-written manifests.
func manifest(t testing.TB, dir, uid string, requestMilli, shares int64, more ...string) {
	t.Helper()
	if shares != 0 {
		more = append(more, fmt.Sprintf(`waterline.io/cpu-share: "%d"`, shares))
	}
	text := fmt.Sprintf("{kind: Pod, metadata: {name: %s, uid: %s, annotations: {%s}}, spec: {containers: [{name: c, "+
		"resources: {requests: {cpu: %dm}}}, {name: d}]}}",
		uid, uid, strings.Join(more, ", "), requestMilli)
	temporary := filepath.Join(dir, "."+uid)
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, uid+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// retract removes a pod's manifest.
func retract(t testing.TB, dir, uid string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, uid+".yaml")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// soak reports whether tests run in their full forms.
func soak() bool { return os.Getenv("WATERLINE_SOAK") != "" }

// emulated reports whether this is the virtual machine. Time means little there, and the whole kernel belongs to the
// tests.
func emulated() bool { return os.Getenv("WATERLINE_VM") != "" }

// liveKernel skips a test on the virtual machine in short form, because emulated CPUs take many times as long.
func liveKernel(t *testing.T, why string) {
	t.Helper()
	if emulated() && !soak() {
		t.Skip("live kernel: in short form, " + why)
	}
}
