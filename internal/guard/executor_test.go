package guard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/test/poll"
)

// Users of the stand-in of the Linux container executor, and the group of the NodeManager.
const (
	nodeManager = 64242
	alice       = 64243
	bob         = 64244
	hadoop      = 64300
)

// TestMain makes this program a NodeManager or its container executor, if it is called like one.
func TestMain(m *testing.M) {
	var run func() error
	switch filepath.Base(os.Args[0]) {
	case "nodemanager":
		run = beNodeManager
	case "container-executor":
		run = beExecutor
	default:
		os.Exit(m.Run())
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
}

// beNodeManager starts a container for each line of the input, which has a user and a container's id. It ends after the
// input and its containers have ended.
func beNodeManager() error {
	var all sync.WaitGroup
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		dir, line := os.Args[1], strings.Fields(lines.Text())
		c := exec.Command(filepath.Join(dir, "bin/container-executor"), append([]string{dir}, line...)...)
		c.Stderr = os.Stderr
		all.Go(func() {
			if err := c.Run(); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", line, err)
			}
		})
	}
	all.Wait()
	return nil
}

// beExecutor does what container-executor of Hadoop 3.5 does to launch a container, by its sources
// (container-executor.c: launch_container_as_user, create_directory_for_user, create_container_directories): it checks
// who calls it, makes the directories of the user and of the container, copies the launch script, and runs it in a
// session of its own as the user. While it waits it is the user in effect, and the NodeManager's user by its real id.
func beExecutor() error {
	dir, container := os.Args[1], os.Args[3]
	user, err := strconv.Atoi(os.Args[2])
	if err != nil || user < 1000 {
		return fmt.Errorf("user %q is refused", os.Args[2])
	}
	if os.Geteuid() != 0 || os.Getuid() != nodeManager || os.Getegid() != hadoop {
		return fmt.Errorf("it runs as user %d for %d of group %d", os.Geteuid(), os.Getuid(), os.Getegid())
	}
	home := filepath.Join(dir, "local/usercache", fmt.Sprint(user))
	app := filepath.Join(home, "appcache", guardlog.Application(container))
	logs := filepath.Join(dir, "logs", guardlog.Application(container))
	work := filepath.Join(app, container)
	script, tokens := filepath.Join(work, "launch_container.sh"), filepath.Join(work, "container_tokens")
	const content = "#!/bin/sh\nexport CONTAINER_ID=%s\nexec /bin/sh -c 'sleep 1000 & wait'\n"
	err = errors.Join(
		give(home, os.ModeDir|os.ModeSetgid|0o750, user, hadoop),
		give(filepath.Dir(app), os.ModeDir|0o710, user, hadoop), give(app, os.ModeDir|0o710, user, hadoop),
		give(work, os.ModeDir|0o710, user, hadoop),
		give(logs, os.ModeDir|0o750, user, hadoop), give(filepath.Join(logs, container), os.ModeDir|0o750, user, hadoop),
		os.WriteFile(script, fmt.Appendf(nil, content, container), 0o700), give(script, 0o700, user, user),
		os.WriteFile(tokens, nil, 0o600), give(tokens, 0o600, user, user),
	)
	if err != nil {
		return err
	}
	c := exec.Command(script)
	c.Dir, c.Env = work, []string{"PATH=/usr/bin:/bin"}
	c.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)},
	}
	if err := c.Start(); err != nil {
		return err
	}
	pid := filepath.Join(dir, "local/nmPrivate", container+".pid")
	err = errors.Join(os.WriteFile(pid, fmt.Append(nil, c.Process.Pid), 0o644), give(pid, 0o644, nodeManager, hadoop),
		syscall.Setresuid(nodeManager, user, 0))
	_ = c.Wait() // its exit code would go to a file
	return err
}

// give makes a directory, if it is one, and gives it or a file an owner and a mode.
func give(path string, mode os.FileMode, user, group int) error {
	if mode.IsDir() {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return errors.Join(os.Chown(path, user, group), os.Chmod(path, mode&^os.ModeDir))
}

// startContainers starts a NodeManager that starts containers, and returns its process when each of them has its two
// processes. They end with the test.
func startContainers(t *testing.T, users map[string]int, ids ...string) (manager int) {
	t.Helper()
	dir := t.TempDir()
	var mount unix.Statfs_t
	if err := unix.Statfs(dir, &mount); err != nil || mount.Flags&unix.ST_NOSUID != 0 {
		t.Skipf("%s is on a file system without setuid programs: %v", dir, err)
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	executor, nm := filepath.Join(dir, "bin/container-executor"), filepath.Join(dir, "bin/nodemanager")
	err = errors.Join(
		os.Chmod(filepath.Dir(dir), 0o755), os.Mkdir(filepath.Join(dir, "bin"), 0o755),
		os.WriteFile(nm, program, 0o755), os.WriteFile(executor, program, 0o700), os.Chown(executor, 0, hadoop),
		os.Chmod(executor, os.ModeSetuid|os.ModeSetgid|0o050),
		give(filepath.Join(dir, "local"), os.ModeDir|0o755, nodeManager, hadoop),
		give(filepath.Join(dir, "local/usercache"), os.ModeDir|0o755, nodeManager, hadoop),
		give(filepath.Join(dir, "local/nmPrivate"), os.ModeDir|0o700, nodeManager, hadoop),
		give(filepath.Join(dir, "logs"), os.ModeDir|0o755, nodeManager, hadoop),
	)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(nm, dir)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nodeManager, Gid: hadoop}}
	lines, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, id := range ids {
			text, _ := os.ReadFile(filepath.Join(dir, "local/nmPrivate", id+".pid"))
			if session, err := strconv.Atoi(string(text)); err == nil {
				_ = unix.Kill(-session, unix.SIGKILL)
			}
		}
		_ = lines.Close()
		_ = c.Wait()
	})
	s := scanner{proc: "/proc"}
	for _, id := range ids {
		fmt.Fprintln(lines, users[id], id)
		if !poll.Until(time.Minute, 10*time.Millisecond, func() bool {
			err := errors.Join(s.find(time.Now(), c.Process.Pid), s.scan(time.Now(), true))
			return err == nil && s.of[id] != nil && len(s.of[id].members) == 2
		}) {
			t.Fatalf("%s does not run: %+v", id, s.of[id])
		}
	}
	return c.Process.Pid
}

// as runs a function as a user with capabilities and no others. The thread that it ran on ends with it.
func as(t *testing.T, user int, capabilities uint32, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if user != 0 {
			for _, call := range [][2]uintptr{{unix.SYS_SETRESGID, hadoop}, {unix.SYS_SETRESUID, uintptr(user)}} {
				if _, _, n := unix.RawSyscall(call[0], call[1], call[1], call[1]); n != 0 {
					t.Error(n)
					return
				}
			}
		} else {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			all := [2]unix.CapUserData{{Effective: capabilities, Permitted: capabilities}}
			if err := unix.Capset(&header, &all[0]); err != nil {
				t.Error(err)
				return
			}
		}
		f()
	}()
	<-done
}

// TestLinuxContainerExecutor checks which containers of other users than the NodeManager a guard can end, and what it
// says when it cannot: as the pool runs it with and without containerExecutor: Linux, and with one capability less. The
// executor is a stand-in, because Hadoop's is a program that is not to be had.
func TestLinuxContainerExecutor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root to run processes as other users")
	}
	const first, second = "container_9999999999999_4242_01_000002", "container_9999999999999_4242_01_000003"
	users := map[string]int{first: alice, second: bob}
	// Bob names Alice's container before it starts. So he does not become a part of it, nor does she lose it.
	forger := exec.Command("sleep", "1000")
	forger.Env, forger.SysProcAttr = []string{"CONTAINER_ID=" + first}, &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: bob, Gid: bob},
	}
	if err := forger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = forger.Process.Kill(), forger.Wait() })
	time.Sleep(30 * time.Millisecond) // start times count in hundredths of a second
	manager := startContainers(t, users, first, second)
	var requests []string
	forbids := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // the ResourceManager
			requests = append(requests, r.URL.String())
			if forbids {
				w.WriteHeader(http.StatusForbidden)
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		one := `{"id":%q,"state":"RUNNING","exitCode":-1000,"user":"%d","totalMemoryNeededMB":256,"totalVCoresNeeded":1}`
		fmt.Fprintf(w, `{"containers":{"container":[`+one+","+one+`]}}`, first, alice, second, bob)
	}))
	defer server.Close()
	const kill, trace, override = 1 << unix.CAP_KILL, 1 << unix.CAP_SYS_PTRACE, 1 << unix.CAP_DAC_OVERRIDE
	for _, test := range []struct {
		name         string
		user         int
		capabilities uint32
		others       bool
		seen         int    // containers with processes
		delivered    int    // processes that got SIGTERM
		says         string // in what was said
		rm           bool   // a ResourceManager can be asked
		forbids      bool   // and refuses
	}{
		{"as the NodeManager's user", nodeManager, 0, false, 0, 0,
			"reading processes: processes below the NodeManager run as other users", false, false},
		{"as that user, by the ResourceManager", nodeManager, 0, false, 0, 0, "", true, false},
		{"as that user, by one that refuses", nodeManager, 0, false, 0, 0, "status 403", true, true},
		{"as that user, for other users", nodeManager, 0, true, 0, 0,
			"need the capabilities KILL, SYS_PTRACE and DAC_OVERRIDE", false, false},
		{"without DAC_OVERRIDE", 0, kill | trace, true, 0, 0, "environments of processes cannot be read", false, false},
		{"without SYS_PTRACE", 0, kill | override, true, 0, 0, "environments of processes cannot be read", false, false},
		{"without KILL", 0, trace | override, true, 2, 0,
			"2 of 2 processes did not get SIGTERM: the kernel does not let the guard signal process", false, false},
		{"without KILL, by the ResourceManager", 0, trace | override, true, 2, 0, "", true, false},
		{"as the pool runs it", 0, kill | trace | override, true, 2, 2, "", true, false},
	} {
		var out bytes.Buffer
		allowance := filepath.Join(t.TempDir(), "allowance")
		err := errors.Join(os.Chmod(filepath.Dir(filepath.Dir(allowance)), 0o755),
			os.WriteFile(allowance, []byte(`{"memoryMiB":256,"vcores":1,"until":"2026-01-01T00:00:00Z"}`), 0o644))
		if err != nil {
			t.Fatal(err)
		}
		o := Options{
			Settings: shed.DefaultSettings(), Allowance: allowance, NodeManager: server.URL, PID: manager, User: "hadoop",
			OtherUsers: test.others, Cgroup: t.TempDir(), Out: &out, Log: slog.New(slog.DiscardHandler),
		}
		if test.rm {
			o.ResourceManagers = []string{server.URL}
		}
		requests, forbids = nil, test.forbids
		g, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		g.take(t.Context(), g.ask(t.Context()))
		as(t, test.user, test.capabilities, func() { g.round(t.Context(), time.Now()) })
		asks := test.rm && test.delivered == 0
		if asks {
			g.heard(t.Context(), <-g.asked)
			want := []string{"/ws/v1/cluster/containers/" + second + "/signal/GRACEFUL_SHUTDOWN?user.name=hadoop"}
			if !slices.Equal(requests, want) || len(g.hits[second]) != 1-len(g.refused) {
				t.Errorf("%s: %q was asked for; hits %v, refused %v", test.name, requests, g.hits, g.refused)
			}
		}
		if _, refused := g.refused[second]; refused != (test.forbids || test.seen > 0 && !test.rm) {
			t.Errorf("%s: refused: %v", test.name, g.refused)
		}
		if g.askRM(t.Context(), "container_1_0001_01_000002", shed.Kill, time.Now()) {
			t.Errorf("%s: the end of a container was asked for that nobody lists", test.name)
		}
		seen, processes := 0, 0
		for _, c := range g.records.state.Containers {
			if processes += c.Processes; c.Processes > 0 {
				seen++
			}
		}
		var r guardlog.Record
		if err := json.NewDecoder(&out).Decode(&r); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		said := strings.Join(g.troubles(), "\n")
		if seen != test.seen || processes != 2*test.seen || r.Processes != test.delivered || r.Asked != asks ||
			!strings.Contains(said, test.says) || test.says == "" && strings.Contains(said, "signal") {
			t.Errorf("%s: %d containers with %d processes, %+v, %s", test.name, seen, processes, r, said)
		}
		if (asks || test.seen > 0) && (r.Container != second || r.Signal != string(shed.Terminate)) {
			t.Errorf("%s: %+v", test.name, r)
		}
	}
	// The container of one user has left, and nothing else has.
	s := scanner{proc: "/proc"}
	if !poll.Until(time.Minute, 10*time.Millisecond, func() bool {
		err := errors.Join(s.find(time.Now(), manager), s.scan(time.Now(), true))
		return err == nil && s.of[second] == nil
	}) {
		t.Errorf("processes are left: %+v", s.of[second])
	}
	if g := s.of[first]; g == nil || len(g.members) != 2 {
		t.Errorf("of the other user there is %+v", g)
	}
	if err := forger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the forger: %v", err)
	}
}
