package cluster

import (
	"os"
	"path/filepath"
	"strings"
)

// The addresses of the cluster, which exist only in its own network namespace and on one veth pair.
const (
	HostAddress    = "10.231.0.1" // the host's end of the veth pair, where the cluster reaches what runs beside it
	nodeAddress    = "10.231.0.2" // the cluster's end: API server and kubelet
	vethPrefix     = "/30"
	vethName       = "wlbed0"
	serviceAddress = "10.96.0.1" // of the Service "kubernetes", on lo, so that no kube-proxy is needed
	serviceRange   = "10.96.0.0/16"
	podRange       = "10.232.0.0/24"
)

// NodeName is the name of the node on this machine. [vmnode.Name] is that of the one in a virtual machine.
const NodeName = "bed"

// CgroupRoot is the kubelet's cgroup root, below which everything of the cluster stands in every hierarchy.
const CgroupRoot = "/waterline-bed"

// Dir is where the state of the cluster is. It is short because there are sockets in it. There can be one cluster at a
// time: addresses and the cgroup root are as fixed.
const Dir = "/var/lib/waterline-bed"

// paths are the files of one cluster.
type paths struct{ dir string }

func (p paths) in(names ...string) string { return filepath.Join(append([]string{p.dir}, names...)...) }

func (p paths) lock() string       { return p.in("lock") }
func (p paths) control() string    { return p.in("control.sock") }
func (p paths) options() string    { return p.in("options.json") }
func (p paths) ready() string      { return p.in("ready") }
func (p paths) failed() string     { return p.in("failed") }
func (p paths) initPID() string    { return p.in("init.pid") }
func (p paths) kubeconfig() string { return p.in("kubeconfig") }
func (p paths) log(name string) string {
	return p.in("log", name+".log")
}
func (p paths) pki(name string) string { return p.in("pki", name) }
func (p paths) staticPods() string     { return p.in("static-pods") }

// runWaterline is what pods see as /run/waterline: memory, as a node's /run is, which the host can look into.
func (p paths) runWaterline() string { return "/dev/shm" + strings.ReplaceAll(p.dir, "/", "-") }

// privateDirs are directories that kubelet, containerd and CNI use under fixed names. Inside, each is covered by an empty
// one of the cluster's own.
var privateDirs = []string{
	"/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd", "/run/netns", "/run/nri", "/run/waterline",
}

// tunables are kernel settings that a kubelet insists on. Inside, plain files with these values stand in their place, so
// that the host's are not changed (k8s.io/component-helpers/node/util/sysctl).
var tunables = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// writeFile writes a file and the directories above it.
func writeFile(path, content string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), mode)
}
