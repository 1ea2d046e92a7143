package vmnode

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/test/bed/vm"
	"github.com/waterline-io/waterline/test/bed/vm/cpio"
)

// modules are what the kernel needs to find its disk and its network, to mount containers' file systems and to connect
// pods, in an order in which they can be inserted. One that the kernel does not have is built in.
var modules = []string{
	"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk",
	"failover", "net_failover", "virtio_net", "overlay", "llc", "stp", "bridge", "veth",
}

// Config is a node to boot.
type Config struct {
	Kernel  string // as [vm.FetchKernel] returns it
	Image   string // of the root file system; it is not written
	Program string // this package's command, linked statically
	// Files of the host, by their paths in the guest.
	Files map[string]string
	// Control is the address on which the host reaches a [Client]'s server. The kubelet is reached at Address.
	Control string
	Memory  int // MiB
	CPUs    int
	Console string // a file for what the guest's console prints
	Monitor string // a socket for qemu's monitor, to see what a guest does that does not answer
}

// WriteInitramfs writes the initramfs for a node to a file.
func WriteInitramfs(file string, c Config) error {
	var b bytes.Buffer
	t := cpio.NewTree(&b)
	for _, dir := range []string{"/proc", "/root"} {
		if err := t.AddDir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := t.AddConsole(); err != nil {
		return err
	}
	if err := t.AddHost(c.Program, initPath); err != nil {
		return err
	}
	for i, name := range modules {
		found, err := vm.Module(c.Kernel, name)
		if err != nil {
			return err
		}
		if found == "" {
			continue
		}
		if err := t.AddHost(found, fmt.Sprintf("/%s/%02d-%s", modulesDir, i, name)); err != nil {
			return err
		}
	}
	for guest, host := range c.Files {
		if err := t.AddHost(host, path.Join("/", overlayDir, guest)); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o600) // it has keys
}

// Command returns the command line that boots a node with the initramfs of [WriteInitramfs].
func Command(initramfs string, c Config) []string {
	return []string{
		"qemu-system-x86_64", "-name", Name, "-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512",
		// The emulated CPU claims five-level page tables, which cost an emulator a level on each walk.
		"-cpu", "max,la57=off", "-smp", strconv.Itoa(c.CPUs), "-m", strconv.Itoa(c.Memory),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-kernel", c.Kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet panic=-1 psi=1 net.ifnames=0 mitigations=off no5lvl nokaslr random.trust_cpu=on " +
			"systemd.show_status=0 systemd.unified_cgroup_hierarchy=1 " + strings.Join(vm.ClockArgs(), " "),
		"-drive", "if=none,id=root,format=raw,snapshot=on,cache=unsafe,file=" + c.Image, "-device",
		"virtio-blk-pci,drive=root",
		"-netdev", fmt.Sprintf("user,id=net,ipv6=off,hostfwd=tcp:%s:%d-:%d,hostfwd=tcp:%s:%d-:%d",
			c.Control, controlPort, controlPort, Address, kubeletPort, kubeletPort),
		"-device", "virtio-net-pci,netdev=net,romfile=",
		"-serial", "file:" + c.Console, "-monitor", "unix:" + c.Monitor + ",server,nowait",
	}
}
