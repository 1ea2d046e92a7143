package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Addresses that exist only in the cluster's own network namespace.
const (
	serviceAddress = "10.96.0.1" // of the Service "kubernetes", on lo, so that no kube-proxy is needed
	serviceRange   = "10.96.0.0/16"
	podRange       = "10.232.0.0/24"
)

// NodeName is the name of the node on this machine. [vmnode.Name] is that of the one in a virtual machine.
const NodeName = "bed"

// CgroupRoot is the kubelet's cgroup root, below which everything of the cluster stands in every hierarchy.
const CgroupRoot = "/waterline-bed"

// place is what of this machine a cluster has for itself.
type place struct {
	dir     string // its state; short because there are sockets in it, and within no other's
	veth    string // the host's end of a veth pair
	host    string // the address of that end, at which the cluster reaches what runs beside it
	address string // of the cluster's end: API server and kubelet
	// With nodes it has the cgroup root too, and covers directories under fixed names. Of these there is one each.
	nodes bool
}

const vethPrefix = "/30"

// places are those where there can be a cluster: one that has nodes, and beside it one that is an API server only.
func places() [2]place {
	return [...]place{
		{"/var/lib/waterline-bed", "wlbed0", "10.231.0.1", "10.231.0.2", true},
		{"/var/lib/waterline-api", "wlbed1", "10.231.0.5", "10.231.0.6", false},
	}
}

// placeOf returns the place of a cluster with such options.
func placeOf(o Options) paths {
	all := places()
	switch {
	case o.Node || o.VM != "":
		return paths{all[0]}
	case o.Dir != "":
		all[1].dir = o.Dir
	}
	return paths{all[1]}
}

// placeAt returns the place whose state is in a directory.
func placeAt(dir string) (paths, error) {
	all := places()
	for _, p := range all {
		if p.dir == dir {
			return paths{p}, nil
		}
	}
	if !filepath.IsAbs(dir) {
		return paths{}, fmt.Errorf("there is no cluster in %s", dir)
	}
	all[1].dir = dir
	return paths{all[1]}, nil
}

// paths are the files of one cluster.
type paths struct{ place }

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

// privateDirs are directories that kubelet, containerd, CNI and the agent use under fixed names. Inside, each is
// covered by an empty one of the cluster's own.
var privateDirs = []string{
	"/var/lib/kubelet", "/var/lib/cni", "/var/lib/waterline", "/var/log/pods", "/var/log/containers", "/run/containerd",
	"/run/netns", "/run/nri", "/run/waterline",
}

// tunables are kernel settings that a kubelet insists on. Inside, plain files with these values stand in their place,
// so that the host's are not changed (k8s.io/component-helpers/node/util/sysctl).
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
