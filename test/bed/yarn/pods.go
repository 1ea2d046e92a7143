package yarn

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"text/template"
)

// Image is the container image of Hadoop, and HadoopUser the user that it runs as.
const (
	Image      = "wl.test/hadoop:1"
	HadoopUser = 1000
)

// FixedNode is the name of the NodeManager's pod in the default partition.
const FixedNode = "fixed"

// What pods see: a directory that they all share, the ResourceManager's state, and a NodeManager's own directories.
const (
	sharedDir = "/shared"
	stateDir  = "/state"
	localDir  = "/local"
	logDir    = "/logs"
	confDir   = "/etc/hadoop"
	libDir    = "/opt/hadoop/lib"
)

// PodOptions say where a cluster in pods runs.
type PodOptions struct {
	Namespace string
	Domain    string // of the Kubernetes cluster's Services, such as cluster.local
	// Shared is a directory of the node, which is this machine. All pods see it, as a distributed file system.
	Shared string
	Lib    string // directory of Hadoop's jars on this machine
	// Exec returns a command that runs a program in a pod of the namespace.
	Exec func(ctx context.Context, pod string, command ...string) *exec.Cmd
}

// Pods is a YARN cluster in pods of a Kubernetes cluster: a ResourceManager, a NodeManager in the default partition, a
// pod in which jobs' clients run. The pods are admitted at the level restricted
// of Pod Security.
type Pods struct {
	Jobs
	o PodOptions
}

// NewPods prepares the shared directory of a cluster. Its pods are those of [Pods.Manifest].
func NewPods(o PodOptions) (*Pods, error) {
	p := &Pods{o: o}
	p.Jobs = Jobs{
		run: func(ctx context.Context, class string, args ...string) *exec.Cmd {
			return o.Exec(ctx, "client", append([]string{"yarn", class}, args...)...)
		},
		lib: o.Lib, libThere: libDir, dir: o.Shared, dirThere: sharedDir,
	}
	if err := os.MkdirAll(p.ExcludeDir(), 0o755); err != nil {
		return nil, fmt.Errorf("making the shared directory: %w", err)
	}
	if err := os.Chown(o.Shared, HadoopUser, HadoopUser); err != nil {
		return nil, fmt.Errorf("making the shared directory: %w", err)
	}
	return p, p.Exclude()
}

// RMHost returns the host name of the ResourceManager.
func (p *Pods) RMHost() string { return "rm." + p.o.Namespace + ".svc." + p.o.Domain }

// RMURL returns the base address of the ResourceManager's web services.
func (p *Pods) RMURL() string { return fmt.Sprintf("http://%s:%d", p.RMHost(), rmWebPort) }

// NodeHost returns the host name of a NodeManager's pod.
func (p *Pods) NodeHost(pod string) string {
	return pod + ".nm." + p.o.Namespace + ".svc." + p.o.Domain
}

// NodeID returns the id under which a NodeManager's pod registers.
func (p *Pods) NodeID(pod string) string { return fmt.Sprintf("%s:%d", p.NodeHost(pod), nmPort) }

// ExcludeDir returns the directory of the file of hosts to decommission, on the node.
func (p *Pods) ExcludeDir() string { return filepath.Join(p.o.Shared, "exclude") }

// Exclude tells the ResourceManager, from its next refresh of nodes on, which hosts are to be decommissioned; none if
// there is no host.
func (p *Pods) Exclude(hosts ...string) error {
	file := filepath.Join(p.ExcludeDir(), "exclude.xml")
	if err := os.WriteFile(file, []byte(ExcludeFile(hosts...)), 0o644); err != nil {
		return fmt.Errorf("writing the list of hosts to decommission: %w", err)
	}
	return nil
}

// ConfigMap is the name of the ConfigMap with Hadoop's configuration. NodeManagers take their host name, MiB and vcores
// from the environment variables NM_HOST, NM_MEMORY_MB and NM_VCORES, and need directories /local and /logs.
const ConfigMap = "hadoop"

// files returns the configuration.
func (p *Pods) files() map[string]string {
	l := Layout{
		Conf: confDir, Lib: libDir, Tmp: "/tmp", State: stateDir, Staging: sharedDir + "/staging",
		Exclude: sharedDir + "/exclude/exclude.xml", RMs: []string{p.RMHost()},
	}
	// Clients and the ResourceManager read these too, without the variables.
	more := nodeSite{
		host: "${env.NM_HOST:-localhost}", bind: "0.0.0.0",
		local: localDir + "/dirs", logs: logDir, state: localDir + "/state",
		memory: "${env.NM_MEMORY_MB:-" + strconv.Itoa(MinMemory) + "}", vcores: "${env.NM_VCORES:-1}", shufflePort: "13562",
	}.properties()
	more["yarn.resourcemanager.bind-host"] = "0.0.0.0"
	// A NodeManager on slack of a busy machine was seen without a heartbeat for 15 seconds. Hadoop's default is 10
	// minutes.
	more["yarn.nm.liveness-monitor.expiry-interval-ms"] = "120000"
	// Nor did one launch a container within the 60 seconds that masters wait.
	more["yarn.rpc.nm-command-timeout"] = "600000"
	// A master that cannot reach a NodeManager fails the task. On a busy machine an answer takes seconds.
	more["yarn.client.nodemanager-connect.max-wait-ms"] = "20000"
	// As in clusters where a NodeManager without a name of its own would stop the allocation of containers.
	more["yarn.resourcemanager.resource-tracker.nm.ip-hostname-check"] = "true"
	return l.files(nil, more)
}

//go:embed pods.yaml
var podsYAML string

// Manifest returns the namespace's objects, with the NodeManager in the default partition, which offers memory in MiB
// and vcores.
func (p *Pods) Manifest(memory, vcores int) string {
	return p.render("cluster", NodePod{Name: FixedNode, MemoryMiB: memory, VCores: vcores,
		Resources: "requests: {cpu: 100m, memory: 512Mi}"})
}

// NodeManifest returns the pod of a further NodeManager.
func (p *Pods) NodeManifest(n NodePod) string { return p.render("node", n) }

// NodePod is a pod of a NodeManager.
type NodePod struct {
	Name      string
	Labels    map[string]string
	Resources string // of its container, in YAML
	MemoryMiB int    // that it offers when it registers
	VCores    int
}

func (p *Pods) render(name string, n NodePod) string {
	quote := func(v any) (string, error) {
		text, err := json.Marshal(v)
		return string(text), err
	}
	var b bytes.Buffer
	t := template.Must(template.New("").Funcs(template.FuncMap{"json": quote}).Parse(podsYAML))
	labels := map[string]string{"app": "nodemanager"} // the Service selects it
	maps.Copy(labels, n.Labels)
	n.Labels = labels
	data := struct {
		NodePod
		Namespace, Shared, Host, ConfigMap, Image, JavaOptions string
		Files                                                  map[string]string
	}{n, p.o.Namespace, p.o.Shared, p.NodeHost(n.Name), ConfigMap, Image, JavaOptions, p.files()}
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Sprintf("error: %q", err) // no template of ours gives one
	}
	return b.String()
}
