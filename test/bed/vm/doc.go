// Package vm runs programs on a kernel of its own: a cgroup v2 kernel in qemu, booted with an initramfs that holds
// busybox, the caller's files and a process 1 that runs the caller's commands one after another as root.
//
// It is the level of the test bed for what a host with cgroup v1, or without pressure stall information, cannot show.
// One boot takes about two seconds without KVM and serves any number of commands. There is no disk and no network; what
// a command prints comes back while it runs, and what it leaves under /out comes back at the end, both over a serial
// port.
//
// Shares of CPU time come out right in the guest. Latencies and throughput mean nothing there.
//
// The guest's process 1 is the calling program itself, which therefore has to be linked statically and to begin with:
//
//	if guest.Here() {
//		guest.Main()
//	}
package vm
