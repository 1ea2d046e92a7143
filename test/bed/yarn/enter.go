package yarn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stage is the environment variable that tells the program which of its three runs it is in.
const stage = "WATERLINE_YARN_BED"

// Enter makes sure that the program runs in namespaces of its own, where dir is an empty file system in memory. Outside
// it runs the program again inside and returns inside = false and that run's exit code. Inside it returns at once. It
// takes root.
//
// init, if not nil, is called outside with the number of the first process inside, through which others can enter.
func Enter(dir string, init func(pid int) error) (inside bool, code int, err error) {
	switch os.Getenv(stage) {
	case "inside":
		return true, 0, os.Unsetenv(stage)
	case "init":
		code, err := asInit(dir)
		return false, code, err
	}
	if os.Geteuid() != 0 {
		return false, 1, errors.New("the YARN test bed makes namespaces, which takes root")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, 1, fmt.Errorf("making the bed's directory: %w", err)
	}
	// The kernel sends the death signal when the thread ends that started the process, not when the program does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := again("init")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS,
		Pdeathsig:  unix.SIGKILL,
	}
	if err := c.Start(); err != nil {
		return false, 1, fmt.Errorf("making namespaces: %w", err)
	}
	if init != nil {
		if err := init(c.Process.Pid); err != nil {
			return false, 1, errors.Join(err, c.Process.Kill(), c.Wait())
		}
	}
	var failed *exec.ExitError
	if err := c.Wait(); errors.As(err, &failed) && failed.Exited() {
		return false, failed.ExitCode(), nil
	} else if err != nil {
		return false, 1, fmt.Errorf("the bed's first process: %w", err)
	}
	return false, 0, nil
}

// again returns the command that runs this program once more.
func again(as string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Args[0] = os.Args[0]
	c.Env = append(os.Environ(), stage+"="+as)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c
}

// asInit is the first process inside. It returns the exit code of the program that it starts.
func asInit(dir string) (int, error) {
	if err := furnish(dir); err != nil {
		return 1, err
	}
	c := again("inside")
	if err := c.Start(); err != nil {
		return 1, fmt.Errorf("starting %s inside: %w", os.Args[0], err)
	}
	// Containers whose NodeManager was killed become children of this process. One that is not reaped looks alive to
	// the next NodeManager.
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil && err != unix.EINTR {
			return 1, fmt.Errorf("waiting for processes: %w", err)
		}
		if pid == c.Process.Pid {
			if status.Signaled() {
				return 1, fmt.Errorf("%s ended with signal %v", os.Args[0], status.Signal())
			}
			return status.ExitStatus(), nil
		}
	}
}

// furnish gives the namespaces their mounts, host names and loopback device.
func furnish(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := unix.Mount("bed", dir, "tmpfs", 0, "size=1g"); err != nil {
		return fmt.Errorf("mounting a file system in memory on %s: %w", dir, err)
	}
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte(hostsFile()), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("covering /etc/hosts: %w", err)
	}
	if err := unix.Sethostname([]byte("bed")); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	return loopback()
}

// loopback brings the device lo up, which gives the namespace every address of 127.0.0.0/8.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bringing up lo: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bringing up lo: %w", err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bringing up lo: %w", err)
	}
	return nil
}

// MaxNodes is how many NodeManagers have a host name.
const MaxNodes = 200

// hostsFile returns the content of /etc/hosts inside. A name is listed before its address is used, because the
// NodeManager names itself after what the address resolves to.
func hostsFile() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost bed\n127.1.0.1 rm1.bed\n127.1.0.2 rm2.bed\n127.1.0.3 zk.bed\n127.1.0.4 kdc.bed\n")
	for i := 1; i <= MaxNodes; i++ {
		fmt.Fprintf(&b, "127.1.1.%d %s\n", i, NodeHost(i))
	}
	return b.String()
}

// NodeHost returns the host name of a NodeManager, counted from 1.
func NodeHost(i int) string { return "nm" + strconv.Itoa(i) + ".bed" }
