package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/test/bed/vmnode"
)

// EtcdAddress is where etcd listens, inside the cluster's namespaces.
const EtcdAddress = "127.0.0.1:2379"

// ClusterDomain is the domain of the names of Services.
const ClusterDomain = "cluster.local"

// component is one process of the cluster.
type component struct {
	name string
	args []string // the program first
}

// controlPlane lists the components that make an API server, in the order of their start.
func controlPlane(p paths, bin string) []component {
	return []component{
		{"etcd", []string{"etcd", "--data-dir", p.in("etcd"), "--unsafe-no-fsync", "--listen-client-urls",
			"http://" + EtcdAddress,
			"--advertise-client-urls", "http://" + EtcdAddress, "--listen-peer-urls", "http://127.0.0.1:2380", "--log-level",
			"warn"}},
		{"apiserver", []string{filepath.Join(bin, "kube-apiserver"),
			"--etcd-servers=http://" + EtcdAddress, "--bind-address=0.0.0.0", "--secure-port=443",
			"--advertise-address=" + p.address,
			"--service-cluster-ip-range=" + serviceRange, "--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + p.pki("accounts.key"), "--service-account-signing-key-file=" + p.pki("accounts.key"),
			"--client-ca-file=" + p.pki("ca.crt"), "--tls-cert-file=" + p.pki("apiserver.crt"),
			"--tls-private-key-file=" + p.pki("apiserver.key"),
			"--kubelet-certificate-authority=" + p.pki("ca.crt"),
			"--kubelet-client-certificate=" + p.pki("apiserver-kubelet.crt"),
			"--kubelet-client-key=" + p.pki("apiserver-kubelet.key"), "--kubelet-preferred-address-types=InternalIP",
			"--authorization-config=" + p.in(authorization), "--enable-admission-plugins=NodeRestriction",
			"--admission-control-config-file=" + p.in(admission), "--allow-privileged=true",
			// webhooks are reached at their pods: without a kube-proxy a Service's address leads nowhere
			"--enable-aggregator-routing",
		}},
		{"controller-manager",
			[]string{filepath.Join(bin, "kube-controller-manager"), "--kubeconfig=" + p.in("controller-manager.kubeconfig"),
				"--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=500", "--use-service-account-credentials",
				"--service-account-private-key-file=" + p.pki("accounts.key"),
				"--root-ca-file=" + p.pki("ca.crt"), "--bind-address=127.0.0.1"}},
		{
			"scheduler", []string{
				filepath.Join(bin, "kube-scheduler"), "--kubeconfig=" + p.in("scheduler.kubeconfig"), "--leader-elect=false",
				"--bind-address=127.0.0.1",
			},
		},
	}
}

// node lists the components that make a node, in the order of their start. CoreDNS is one if it is built: only pods of
// YARN need names.
func node(p paths, bin string) []component {
	var all []component
	if dns := filepath.Join(bin, "coredns"); exists(dns) {
		all = append(all, component{"coredns", []string{dns, "-conf", p.in("Corefile")}})
	}
	return append(all, []component{
		{"containerd", []string{filepath.Join(bin, "containerd"), "--config", p.in("containerd.toml")}},
		{"kubelet", []string{filepath.Join(bin, "kubelet"), "--config=" + p.in("kubelet.yaml"),
			"--kubeconfig=" + p.in("kubelet.kubeconfig"),
			"--hostname-override=" + NodeName, "--node-ip=" + p.address, "--root-dir=/var/lib/kubelet", "--v=2"}},
	}...)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// writeNodeConfig writes the configuration files of containerd, CNI and the kubelet. What is not set has the default
// that production has; cpuCFSQuota in particular.
func writeNodeConfig(p paths, o Options) error {
	for path, content := range map[string]string{
		p.in("containerd.toml"):             containerdConfig(p, o.Bin),
		p.in("cni", "10-bed.conflist"):      cniConfig,
		p.in("kubelet.yaml"):                kubeletConfig(p) + cpuManager(o) + backOff(o),
		p.in("Corefile"):                    corefile(p),
		filepath.Join(p.staticPods(), ".d"): "",
	} {
		if err := writeFile(path, content, 0o644); err != nil {
			return fmt.Errorf("configuring the node: %w", err)
		}
	}
	return nil
}

func containerdConfig(p paths, bin string) string {
	// Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj, and dies with "can't get final child's PID from pipe".
	restrict := !hasSysResource()
	return fmt.Sprintf(`version = 3
root = %q
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = %v
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [%q]
  conf_dir = %q
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
`, p.in("containerd"), PauseImage, restrict, bin, p.in("cni"))
}

const cniConfig = `{"cniVersion": "1.0.0", "name": "bed", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + podRange + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}}
]}
`

func kubeletConfig(p paths) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: %s
volumePluginDir: %s
tlsCertFile: %s
tlsPrivateKeyFile: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true, cacheTTL: 1s}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 1s, cacheUnauthorizedTTL: 1s}}
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: "1%%", imagefs.available: "1%%"}
nodeStatusUpdateFrequency: 4s
shutdownGracePeriod: 0s
clusterDNS: [%s]
clusterDomain: %s
`, p.address, CgroupRoot, p.staticPods(), p.in("volume-plugins"), p.pki("kubelet-server.crt"), p.pki("kubelet-server.key"), p.pki("ca.crt"),
		p.address, ClusterDomain)
}

// corefile returns the configuration of CoreDNS. It serves names of Services and of their pods, and the names of pods'
// addresses. Nothing is cached, so that a new pod has its name at once.
func corefile(p paths) string {
	return fmt.Sprintf(`.:53 {
  bind %s
  errors
  kubernetes %s in-addr.arpa {
    kubeconfig %s
    ttl 1
  }
}
`, p.address, ClusterDomain, p.in("coredns.kubeconfig"))
}

// cpuManager returns the part of the kubelet's configuration that says which CPUs containers may have for themselves.
// Half a CPU reserved keeps one CPU from that, and leaves enough of it for pods that ask for little on a machine with
// two.
func cpuManager(o Options) string {
	if !o.Static {
		return ""
	}
	return "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m}\n"
}

// backOff returns the part of the kubelet's configuration that says how long a container that ends again and again must
// wait. Its feature is off by default before Kubernetes 1.35.
func backOff(o Options) string {
	if !o.ShortBackOff {
		return ""
	}
	return "featureGates: {KubeletCrashLoopBackOffMax: true}\ncrashLoopBackOff: {maxContainerRestartPeriod: 10s}\n"
}

// vmConfig returns what the node in a virtual machine is made of.
func vmConfig(p paths, o Options) vmnode.Config {
	c := vmnode.Config{
		Kernel: o.VM, Image: filepath.Join(o.Bin, "vmnode.img"), Program: filepath.Join(o.Bin, "vmnode"), Control: p.address,
		Memory: 1024, CPUs: 2, Console: p.log("vm-console"), Monitor: p.in("vm.monitor"),
		Files: map[string]string{
			vmnode.Program:    filepath.Join(o.Bin, "vmnode"),
			vmnode.CA:         p.pki("ca.crt"),
			vmnode.Cert:       p.pki("vm.crt"),
			vmnode.Key:        p.pki("vm.key"),
			vmnode.Kubeconfig: p.in("vm.kubeconfig"),
		},
	}
	for _, image := range o.Images {
		c.Files[filepath.Join(vmnode.Images, filepath.Base(image))] = image
	}
	return c
}

// hasSysResource reports whether this process may raise resource limits.
func hasSysResource() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// environment is what the components see of ours: the bed's own programs first, then the system's.
func environment(bin string) []string {
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=/root", "GOMAXPROCS=2"}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "TMPDIR=") {
			env = append(env, kv)
		}
	}
	return env
}
