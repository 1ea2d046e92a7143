package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files below procfs. The switch reads 1 while the kernel uses group identities (cpu.bvt_warp_ns). Kernels before
// 4.19.91-26.4 and 5.10.134-13 have no switch and always use them. Writing the switch resets all identities to 0.
const (
	releaseFile    = "sys/kernel/osrelease"
	identitySwitch = "sys/kernel/sched_group_identity_enabled"
)

// Reasons why group identities are unavailable, in the form "needs ...".
const (
	identityKernel  = "needs a kernel with cpu.bvt_warp_ns, such as those of Alibaba Cloud Linux and Anolis OS"
	identitySafe    = "needs kernel 4.19.91-25.6 or newer: this kernel panics, or its release cannot be read"
	identityEnabled = "needs the sysctl kernel.sched_group_identity_enabled to be 1"
)

// excludePanickingKernel marks identities as unavailable on a kernel that panics when they are used. It runs
// before every other probe.
func (t *Tree) excludePanickingKernel() {
	if release, err := os.ReadFile(filepath.Join(t.proc, releaseFile)); err != nil || identityPanics(string(release)) {
		t.model.NoIdentity = identitySafe
	}
}

// probeIdentity finds out whether groups can have an identity, given whether the kernel has the file.
func (t *Tree) probeIdentity(has bool) {
	switch {
	case t.model.NoIdentity != "":
	case !has:
		t.model.NoIdentity = identityKernel
	default:
		t.identity = true
		t.readIdentitySwitch()
	}
}

// readIdentitySwitch reads whether the kernel uses identities and reports whether that changed.
func (t *Tree) readIdentitySwitch() bool {
	content, err := os.ReadFile(filepath.Join(t.proc, identitySwitch))
	now := ""
	if string(bytes.TrimSpace(content)) != "1" && !errors.Is(err, fs.ErrNotExist) {
		now = identityEnabled
	}
	changed := now != t.model.NoIdentity
	t.model.NoIdentity = now
	return changed
}

// identityPanics reports whether a kernel of this release panics when identities are used. By the documentation
// of Alibaba Cloud Linux 2, releases 4.19.91-25.1 to 4.19.91-25.5 do.
func identityPanics(release string) bool {
	var patch int
	_, err := fmt.Sscanf(release, "4.19.91-25.%d", &patch)
	return err == nil && patch >= 1 && patch <= 5
}
