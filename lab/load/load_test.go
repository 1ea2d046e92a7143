package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sent runs send and returns what became of the requests.
func sent(t *testing.T, r Requests) Outcome {
	t.Helper()
	var out strings.Builder
	done := make(chan error, 1)
	go func() { done <- send(r, &out) }() // it binds its thread
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var o Outcome
	if err := json.Unmarshal([]byte(out.String()), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSend sends requests to a server that answers at once.
func TestSend(t *testing.T) {
	dir := t.TempDir()
	var files [2]*os.File
	for i, name := range []string{requestsFile, answersFile} {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	go func() {
		buf := make([]byte, 3) // "17\n"
		for {
			if _, err := files[0].Read(buf); err != nil || string(buf) != "17\n" {
				return
			}
			if _, err := files[1].Write([]byte("\n")); err != nil {
				return
			}
		}
	}()
	cpus, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	r := Requests{Dir: dir, CPU: cpus[0], Line: "17", Rates: Rates{500}, Length: 200 * time.Millisecond, Seed: 1}
	got := sent(t, r)
	if len(got.Requests) != len(r.Rates.schedule(0, r.Length, 1)) || got.Scheduled != "normal" {
		t.Fatalf("%d requests, scheduled %q", len(got.Requests), got.Scheduled)
	}
	for _, a := range got.Requests {
		if a.Late() < 0 || a.Ready < a.Sent || a.Latency() <= 0 {
			t.Errorf("%+v", a)
		}
	}
}

// TestTaskClock checks that the CPU time of a thread that runs grows from one reading to the next, not with each tick.
func TestTaskClock(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := client{}
	var err error
	c.watched, err = unix.Open("/proc/thread-self/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(c.watched)
	c.clock, err = taskClock(unix.Gettid())
	if errors.Is(err, unix.EACCES) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(c.clock)
	last := c.readServer()
	for range 100 {
		now := c.readServer()
		if now.Ran <= last.Ran {
			t.Fatalf("%s after %s", now.Ran, last.Ran)
		}
		last = now
	}
}

// TestSendMany checks that the generator uses all connections, recognises errors, and does not wait for one answer
// before it sends the next request.
func TestSendMany(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "server")
			}
			listener, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			const many, slow = 4, 50 * time.Millisecond
			go func() {
				for i := 0; ; i++ {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go answer(conn, i == 0, slow)
				}
			}()
			got := sent(t, Requests{
				Address: listener.Addr().String(), Connections: many, CPU: -1, Line: "EVALSHA x", Rates: Rates{200},
				Length: 500 * time.Millisecond, Seed: 1,
			})
			refused, ahead := 0, 0
			for i, a := range got.Requests {
				if a.Latency() < slow || a.Late() < 0 {
					t.Errorf("%+v", a)
				}
				if a.Refused {
					refused++
				}
				ahead = max(ahead, a.Ahead)
				if i%many == 0 != a.Refused {
					t.Errorf("request %d: refused is %v", i, a.Refused)
				}
			}
			if refused == 0 || ahead < 3 {
				t.Errorf("%d refused, %d before one at most", refused, ahead)
			}
		})
	}
}

// answer answers every line after a time, without delaying the next one.
func answer(conn net.Conn, refuse bool, after time.Duration) {
	defer conn.Close()
	text := ":-1\r\n"
	if refuse {
		text = "-ERR -no\r\n"
	}
	due := make(chan time.Time, 1000)
	go func() {
		for at := range due {
			time.Sleep(time.Until(at))
			for _, part := range []string{text[:3], text[3:]} { // as packets may come
				if _, err := conn.Write([]byte(part)); err != nil {
					return
				}
			}
		}
	}()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		due <- time.Now().Add(after)
	}
	close(due)
}

// TestSendWithoutServer checks the errors for a server that hangs up and for one that does not exist.
func TestSendWithoutServer(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "server"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	r := Requests{
		Address: listener.Addr().String(), Connections: 1, CPU: -1, Line: "x", Rates: Rates{100}, Length: time.Second,
		Seed: 1,
	}
	if err := send(r, new(strings.Builder)); err == nil {
		t.Error("no error for a server that hung up")
	}
	listener.Close()
	if err := send(r, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), "connecting") {
		t.Error(err)
	}
}

// TestPrioritize checks that the reported scheduling class is the real one.
func TestPrioritize(t *testing.T) {
	scheduled := make(chan string)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		class := Prioritize()
		attr, err := unix.SchedGetAttr(0, 0)
		switch {
		case err != nil:
			class = err.Error()
		case class == "SCHED_FIFO" && attr.Policy != unix.SCHED_FIFO || class == "nice -20" && attr.Nice != -20:
			class = fmt.Sprintf("%s: %+v", class, attr)
		}
		scheduled <- class
	}()
	if class := <-scheduled; !slices.Contains([]string{"SCHED_FIFO", "nice -20", "normal"}, class) {
		t.Error(class)
	}
}

// TestSeparate checks that a server is kept off the last CPU, which is the generator's, and that it keeps the others.
func TestSeparate(t *testing.T) {
	cpus, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(cpus) < 2 {
		t.Skip("this machine has one CPU")
	}
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	last, err := Separate(c.Process.Pid)
	if err != nil || last != cpus[len(cpus)-1] {
		t.Fatalf("the generator has CPU %d of %v: %v", last, cpus, err)
	}
	var left unix.CPUSet
	if err := unix.SchedGetaffinity(c.Process.Pid, &left); err != nil {
		t.Fatal(err)
	}
	if left.IsSet(last) || left.Count() != len(cpus)-1 {
		t.Errorf("of the CPUs %v it may use %d, CPU %d: %v", cpus, left.Count(), last, left.IsSet(last))
	}
	if _, err := Separate(-1); err == nil {
		t.Error("a process that does not exist was kept off a CPU")
	}
}
