// Package cluster brings up a real Kubernetes cluster of one node on this machine for tests, and down again: etcd, the
// control plane and, on request, containerd and a kubelet with real pods.
//
// Everything runs in PID, mount and network namespaces of its own. The first process in there is their init: when it
// ends, for whatever reason, the kernel ends all the others, and mounts and network devices go with their namespaces.
// What does not go by itself, the cgroups and a few empty directories, is swept by a process that only waits for that
// moment, and again before the next cluster starts. So it can run beside another kubelet, and nothing is left behind
// however it ends.
//
//	Up (outside)                    init (PID 1 inside)              supervisor (inside)
//	  takes the lock                  reaps orphans                    mounts, network, certificates
//	  starts the sweeper              ends when its child does,        starts the components in order
//	  starts init in namespaces       or when told by a closed pipe    obeys the control socket
//	  makes the veth pair
//	  waits until it is ready
package cluster
