package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/waterline-io/waterline/test/bed/vm/cpio"
	"github.com/waterline-io/waterline/test/bed/vm/wire"
)

// hostname is the guest's.
const hostname = "waterline-vm"

// spare is how much memory, in MiB, the guest gets beyond what its files take.
const spare = 96

// fillInitramfs writes the initramfs to a file and goes back to its beginning.
func fillInitramfs(ctx context.Context, f *os.File, c Config) error {
	b := bufio.NewWriterSize(f, 1<<20)
	if err := writeInitramfs(ctx, b, c); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing the initramfs: %w", err)
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("writing the initramfs: %w", err)
	}
	// The archive and what is unpacked from it are in memory at once, and the guest's root may take half of it.
	if need := 2 * (int(size>>20) + spare); need > c.Memory {
		return fmt.Errorf("files of %d MiB need a guest with %d MiB of memory, not %d", size>>20, need, c.Memory)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("writing the initramfs: %w", err)
	}
	return nil
}

// writeInitramfs writes the archive that the kernel unpacks as the guest's root. It is not compressed: qemu hands it
// over faster than an emulated CPU could unpack it.
func writeInitramfs(ctx context.Context, w io.Writer, c Config) error {
	t := cpio.NewTree(w)
	if err := addBase(ctx, t, c.Init); err != nil {
		return err
	}
	plan, err := json.MarshalIndent(planOf(c), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the plan: %w", err)
	}
	if err := t.AddBytes(wire.PlanPath, plan); err != nil {
		return err
	}
	for _, f := range c.Files {
		if err := t.AddHost(f.Host, f.Guest); err != nil {
			return err
		}
	}
	return t.Close()
}

func planOf(c Config) wire.Plan {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root", "WATERLINE_VM=1"}
	return wire.Plan{
		Hostname: hostname, Env: append(env, c.Env...), Commands: c.Commands,
		Timeout: c.Timeout, SendOut: c.OutDir != "",
	}
}

// addBase adds process 1, busybox under all its names, and the few files of /etc that libraries look for.
func addBase(ctx context.Context, t *cpio.Tree, init string) error {
	for _, dir := range []string{"/root", "/usr/bin", "/usr/local/bin", "/var/tmp"} {
		if err := t.AddDir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := t.AddConsole(); err != nil {
		return err
	}
	if err := t.AddHost(init, wire.InitPath); err != nil {
		return err
	}
	if err := addBusybox(ctx, t); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"/etc/hostname": hostname + "\n",
		"/etc/hosts":    "127.0.0.1 localhost " + hostname + "\n",
		"/etc/passwd":   "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"/etc/group":    "root:x:0:\nnogroup:x:65534:\n",
	} {
		if err := t.AddBytes(name, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

func addBusybox(ctx context.Context, t *cpio.Tree) error {
	host, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%w: install the package busybox-static", err)
	}
	if err := t.AddHost(host, "/bin/busybox"); err != nil {
		return fmt.Errorf("%w: install the package busybox-static", err)
	}
	applets, err := output(ctx, "", host, "--list")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(applets)) {
		if t.Has("/bin/" + name) {
			continue
		}
		if err := t.AddLink("/bin/"+name, "busybox"); err != nil {
			return err
		}
	}
	return nil
}
