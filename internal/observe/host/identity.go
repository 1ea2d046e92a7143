package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files below the proc file system. The switch reads 1 while the kernel heeds group identities. Kernels before 4.19.91-26.4 and
// 5.10.134-13 do that always and do not have it. When it is switched, all identities become 0.
const (
	releaseFile    = "sys/kernel/osrelease"
	identitySwitch = "sys/kernel/sched_group_identity_enabled"
)

// What it takes to have group identities.
const (
	identityKernel  = "needs a kernel with cpu.bvt_warp_ns, such as those of Alibaba Cloud Linux and Anolis OS"
	identitySafe    = "needs 4.19.91-25.6 or newer: this kernel panics, or does not say which it is"
	identityEnabled = "needs the sysctl kernel.sched_group_identity_enabled to be 1"
)

// beware keeps identities from being used on a kernel that panics then, before anything else is known of it.
func (t *Tree) beware() {
	if release, err := os.ReadFile(filepath.Join(t.proc, releaseFile)); err != nil || identityPanics(string(release)) {
		t.model.NoIdentity = identitySafe
	}
}

// probeIdentity finds out whether groups can be told who goes first, if the kernel has the file for it.
func (t *Tree) probeIdentity(has bool) {
	switch {
	case t.model.NoIdentity != "":
	case !has:
		t.model.NoIdentity = identityKernel
	default:
		t.identity = true
		t.switched()
	}
}

// switched reads whether the kernel heeds identities and reports whether that is news.
func (t *Tree) switched() bool {
	content, err := os.ReadFile(filepath.Join(t.proc, identitySwitch))
	now := ""
	if string(bytes.TrimSpace(content)) != "1" && !errors.Is(err, fs.ErrNotExist) {
		now = identityEnabled
	}
	news := now != t.model.NoIdentity
	t.model.NoIdentity = now
	return news
}

// identityPanics reports whether a kernel of this release panics where identities are used: 4.19.91-25.1 to 25.5 of Alibaba
// Cloud Linux 2 do, by its documentation.
func identityPanics(release string) bool {
	var patch int
	_, err := fmt.Sscanf(release, "4.19.91-25.%d", &patch)
	return err == nil && patch >= 1 && patch <= 5
}
