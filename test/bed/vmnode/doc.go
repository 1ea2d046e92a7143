// Package vmnode is a Kubernetes node in a virtual machine: cgroup v2, systemd and the systemd cgroup driver, on the
// distribution's kernel under an emulated CPU. It joins a cluster whose API server runs on the host.
//
// The root file system is built once, by image.sh, from the distribution's packages and the files in rootfs. What
// differs from boot to boot, credentials and images above all, is in the initramfs and is copied over it.
//
// There is no ssh and no console to talk to: this package's command serves files and commands inside, over TLS with the
// cluster's certificates, and a [Client] asks it.
package vmnode

// What the guest has under fixed paths.
const (
	initPath   = "/init"   // of the initramfs
	overlayDir = "overlay" // of the initramfs: copied over the root
	modulesDir = "modules" // of the initramfs: inserted in the order of their names

	// Program is where the guest has this package's command.
	Program = "/usr/local/bin/vmnode"
	// CA is the certificate authority of the cluster. Cert and Key are the node's, as a client and as a server.
	CA   = "/etc/kubernetes/pki/ca.crt"
	Cert = "/etc/kubernetes/pki/node.crt"
	Key  = "/etc/kubernetes/pki/node.key"
	// Kubeconfig is the kubelet's.
	Kubeconfig = "/etc/kubernetes/kubeconfig"
	// Images has the archives of images that are imported at boot, and the pods' pause image among them.
	Images = "/opt/images"
	// StaticPods is the kubelet's directory of static pods.
	StaticPods = "/etc/kubernetes/manifests"
)

// The guest's network, qemu's "user" network: it reaches everything that qemu reaches.
const (
	// Name is the node's name.
	Name = "bed-v2"
	// Address is the node's. The host reaches the kubelet's port there, if it has the address for its own.
	Address     = "10.0.2.15"
	kubeletPort = 10250
	controlPort = 7700
)
