package vm

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
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

// tree writes an initramfs: each entry once, each after the folder that it is in.
type tree struct {
	w    *cpio.Writer
	have map[string]bool
}

// writeInitramfs writes the archive that the kernel unpacks as the guest's root. It is not compressed: qemu hands it over
// faster than an emulated CPU could unpack it.
func writeInitramfs(ctx context.Context, w io.Writer, c Config) error {
	t := tree{w: cpio.NewWriter(w), have: map[string]bool{"": true}}
	if err := t.addBase(ctx, c.Init); err != nil {
		return err
	}
	plan, err := json.MarshalIndent(planOf(c), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the plan: %w", err)
	}
	if err := t.addBytes(wire.PlanPath, plan); err != nil {
		return err
	}
	for _, f := range c.Files {
		if err := t.addHost(f); err != nil {
			return err
		}
	}
	return t.w.Close()
}

func planOf(c Config) wire.Plan {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root", "WATERLINE_VM=1"}
	return wire.Plan{
		Hostname: hostname, Env: append(env, c.Env...), Commands: c.Commands,
		Timeout: c.Timeout, SendOut: c.OutDir != "",
	}
}

// addBase adds process 1, busybox under all its names, and the few files of /etc that libraries look for.
func (t *tree) addBase(ctx context.Context, init string) error {
	for _, dir := range []string{"/root", "/usr/bin", "/usr/local/bin", "/var/tmp"} {
		if err := t.addDir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := t.addDir("/dev", 0o755); err != nil {
		return err
	}
	// Process 1 has no output without it: devtmpfs is not mounted yet.
	console := cpio.Header{Name: "dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1}
	if err := t.add(console, nil); err != nil {
		return err
	}
	if err := t.addHost(File{init, wire.InitPath}); err != nil {
		return err
	}
	if err := t.addBusybox(ctx); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"/etc/hostname": hostname + "\n",
		"/etc/hosts":    "127.0.0.1 localhost " + hostname + "\n",
		"/etc/passwd":   "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"/etc/group":    "root:x:0:\nnogroup:x:65534:\n",
	} {
		if err := t.addBytes(name, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) addBusybox(ctx context.Context) error {
	host, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%w: install the package busybox-static", err)
	}
	if err := t.addHost(File{host, "/bin/busybox"}); err != nil {
		return fmt.Errorf("%w: install the package busybox-static", err)
	}
	applets, err := output(ctx, "", host, "--list")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(applets)) {
		if t.have["bin/"+name] {
			continue
		}
		link := cpio.Header{Name: "bin/" + name, Mode: fs.ModeSymlink | 0o777, Size: int64(len("busybox"))}
		if err := t.add(link, strings.NewReader("busybox")); err != nil {
			return err
		}
	}
	return nil
}

// addHost adds a file of the host, or a folder with everything in it.
func (t *tree) addHost(f File) error {
	if !path.IsAbs(f.Guest) {
		return fmt.Errorf("adding %s to the guest: %q is not an absolute path", f.Host, f.Guest)
	}
	host, err := filepath.EvalSymlinks(f.Host)
	if err != nil {
		return fmt.Errorf("adding to the guest: %w", err)
	}
	return filepath.WalkDir(host, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("adding to the guest: %w", err)
		}
		return t.addEntry(p, path.Join(f.Guest, filepath.ToSlash(strings.TrimPrefix(p, host))), d)
	})
}

func (t *tree) addEntry(host, guest string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("adding %s to the guest: %w", host, err)
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return t.addDir(guest, info.Mode().Perm())
	case fs.ModeSymlink:
		target, err := os.Readlink(host)
		if err != nil {
			return fmt.Errorf("adding %s to the guest: %w", host, err)
		}
		h := cpio.Header{Name: rel(guest), Mode: fs.ModeSymlink | 0o777, Size: int64(len(target))}
		return t.add(h, strings.NewReader(target))
	case 0:
		return t.addFile(host, guest, info)
	}
	return fmt.Errorf("adding %s to the guest: neither file nor folder nor link: %v", host, info.Mode())
}

func (t *tree) addFile(host, guest string, info fs.FileInfo) error {
	f, err := os.Open(host)
	if err != nil {
		return fmt.Errorf("adding to the guest: %w", err)
	}
	defer f.Close()
	if interp := interpreter(f); interp != "" && !t.have[rel(interp)] {
		return fmt.Errorf("adding %s to the guest: it is linked dynamically, and the guest has no %s (for Go: CGO_ENABLED=0)",
			host, interp)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("adding to the guest: %w", err)
	}
	return t.add(cpio.Header{Name: rel(guest), Mode: info.Mode().Perm(), Size: info.Size()}, f)
}

// interpreter returns the dynamic linker that a program asks for, or nothing.
func interpreter(r io.ReaderAt) string {
	f, err := elf.NewFile(r)
	if err != nil {
		return ""
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(p.Open())
		if err != nil {
			return ""
		}
		return string(bytes.TrimRight(b, "\x00"))
	}
	return ""
}

func (t *tree) addBytes(guest string, b []byte) error {
	return t.add(cpio.Header{Name: rel(guest), Mode: 0o644, Size: int64(len(b))}, bytes.NewReader(b))
}

func (t *tree) addDir(guest string, perm fs.FileMode) error {
	if t.have[rel(guest)] {
		return nil
	}
	return t.add(cpio.Header{Name: rel(guest), Mode: fs.ModeDir | perm}, nil)
}

func (t *tree) add(h cpio.Header, r io.Reader) error {
	if dir := path.Dir(h.Name); dir != "." {
		if err := t.addDir("/"+dir, 0o755); err != nil {
			return err
		}
	}
	if t.have[h.Name] {
		return fmt.Errorf("adding %s to the guest: it is there twice", h.Name)
	}
	t.have[h.Name] = true
	return t.w.Add(h, r)
}

// rel is a guest path as archives have it.
func rel(guest string) string { return strings.TrimPrefix(path.Clean(guest), "/") }
