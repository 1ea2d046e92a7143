package yarn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/bed/logs"
)

// MinMemory is the smallest container in MiB. A NodeManager with less than that is shut down when it registers.
const MinMemory = 128

// Options say what to bring up.
type Options struct {
	Lib  string // directory of Hadoop's jars
	Dir  string // directory for configuration and state; that of [Enter]
	Logs string // directory for logs; emptied first
	HA   bool   // two ResourceManagers and ZooKeeper
	// Site has further settings of yarn-site.xml.
	Site map[string]string
	// Kerberos makes a KDC, and every daemon ask for Kerberos. The ResourceManager's web services have TLS then. It
	// excludes HA.
	Kerberos bool
}

// Bed is a YARN cluster.
type Bed struct {
	Jobs
	layout     Layout
	dir, logs  string
	ha, secure bool
	site       properties
	java       string // JAVA_HOME
	kdc        *Daemon
	rms        []*Daemon
	nodes      map[int]*Daemon
	hosts      atomic.Int32 // that were named with [Bed.NameHost]
}

// Attach returns the cluster that another process runs, to run commands in it with [Bed.Command].
func Attach(o Options) (*Bed, error) {
	b := &Bed{ha: o.HA, secure: o.Kerberos, site: o.Site, nodes: map[int]*Daemon{}}
	var lib string
	for path, from := range map[*string]string{&lib: o.Lib, &b.dir: o.Dir, &b.logs: o.Logs} {
		absolute, err := filepath.Abs(from)
		if err != nil {
			return nil, err
		}
		*path = absolute
	}
	jars, _ := filepath.Glob(filepath.Join(lib, "hadoop-yarn-server-resourcemanager-*.jar"))
	if len(jars) == 0 {
		return nil, fmt.Errorf("no Hadoop in %s; run test/bed/yarn/build.sh", lib)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("the bed needs Java 17; install openjdk-17-jre-headless: %w", err)
	}
	if java, err = filepath.EvalSymlinks(java); err != nil {
		return nil, err
	}
	b.java = filepath.Dir(filepath.Dir(java))
	b.layout = Layout{
		Conf: b.in("conf"), Lib: lib, Tmp: b.in("tmp"), State: b.dir, Staging: b.in("staging"),
		Exclude: b.in("conf", "exclude.xml"), RMs: []string{RMHost(1)},
	}
	if b.ha {
		b.layout.RMs = append(b.layout.RMs, RMHost(2))
		b.layout.ZK = zkHost + ":" + strconv.Itoa(zkPort)
	}
	b.Jobs = Jobs{run: b.Command, lib: lib, libThere: lib, dir: b.dir, dirThere: b.dir}
	return b, nil
}

// Up configures a cluster and starts its ResourceManager, or both. It does not wait until they work.
func Up(o Options) (*Bed, error) {
	b, err := Attach(o)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(b.logs); err != nil {
		return nil, fmt.Errorf("emptying the directory of logs: %w", err)
	}
	if err := os.MkdirAll(b.logs, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of logs: %w", err)
	}
	if b.secure && b.ha {
		return nil, errors.New("the bed has no Kerberos for two ResourceManagers")
	}
	if err := b.configure(); err != nil {
		return nil, fmt.Errorf("configuring YARN: %w", err)
	}
	if b.secure {
		if err := errors.Join(b.startKDC(), b.makeCertificate("rm1", RMHost(1))); err != nil {
			return nil, err
		}
	}
	ids := []string{"rm1"}
	if b.ha {
		ids = []string{"rm1", "rm2"}
		zk := b.daemon("zk", 128, "org.apache.zookeeper.server.ZooKeeperServerMain", strconv.Itoa(zkPort), b.in("zk"))
		if err := zk.Start(); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		var args []string
		if b.ha {
			args = append(args, "-Dyarn.resourcemanager.ha.id="+id)
		}
		rm := b.daemon(id, 512, "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager", args...)
		if err := rm.Start(); err != nil {
			return nil, err
		}
		b.rms = append(b.rms, rm)
	}
	return b, nil
}

const zkHost = "zk.bed"

// RMHost returns the host name of a ResourceManager, counted from 1.
func RMHost(i int) string { return "rm" + strconv.Itoa(i) + ".bed" }

// RM returns a ResourceManager, counted from 1.
func (b *Bed) RM(i int) *Daemon { return b.rms[i-1] }

// RMURL returns the base address of a ResourceManager's web services without TLS.
func RMURL(i int) string { return fmt.Sprintf("http://%s:%d", RMHost(i), rmWebPort) }

// RMAdmin returns the address of a ResourceManager's administration protocol.
func RMAdmin(i int) string { return fmt.Sprintf("%s:%d", RMHost(i), rmAdminPort) }

// NodeID returns the id under which a NodeManager registers.
func NodeID(i int) string { return fmt.Sprintf("%s:%d", NodeHost(i), nmPort) }

// NodeURL returns the base address of a NodeManager's web services.
func NodeURL(i int) string { return fmt.Sprintf("http://%s:%d", NodeHost(i), nmWebPort) }

// LocalDir returns the directory of a NodeManager in which applications have their files.
func (b *Bed) LocalDir(i int) string { return b.in("nm"+strconv.Itoa(i), "local") }

// Node returns a NodeManager that was added, counted from 1.
func (b *Bed) Node(i int) *Daemon { return b.nodes[i] }

// AddNode configures a NodeManager that offers memory in MiB and vcores, and starts it. It does not wait until it
// registers.
func (b *Bed) AddNode(i, memory, vcores int) error {
	if i < 1 || i > MaxNodes {
		return fmt.Errorf("node %d: nodes are counted from 1 to %d", i, MaxNodes)
	}
	name := "nm" + strconv.Itoa(i)
	host := NodeHost(i)
	own := nodeSite{
		host: host, bind: host, local: b.LocalDir(i), logs: filepath.Join(b.logs, name), state: b.in(name, "recovery"),
		memory: strconv.Itoa(memory), vcores: strconv.Itoa(vcores),
		shufflePort: strconv.Itoa(13562 + i), // it listens on all addresses
	}.properties()
	if b.secure {
		if err := b.addPrincipals(name, "", "nm/"+host, "HTTP/"+host); err != nil {
			return err
		}
		maps.Copy(own, b.secureNode(name, host))
	}
	b.nodes[i] = b.daemon(name, 256, "org.apache.hadoop.yarn.server.nodemanager.NodeManager", own.definitions()...)
	return b.nodes[i].Start()
}

// Down stops every daemon, NodeManagers first, and waits until they are gone.
func (b *Bed) Down(ctx context.Context) error {
	for _, d := range b.nodes {
		if err := d.Stop(ctx); err != nil {
			return err
		}
	}
	for _, d := range append(b.rms[:len(b.rms):len(b.rms)], b.kdc) {
		if d == nil {
			continue
		}
		if err := d.Stop(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Command returns a command that runs a Java class with Hadoop's jars and the cluster's configuration, such as a job's
// client.
func (b *Bed) Command(ctx context.Context, class string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(b.java, "bin/java"), b.javaArgs(b.layout, 256, class, args...)...)
	c.Env, c.Dir = b.Env(), b.dir
	return c
}

// Env returns the environment in which Hadoop's commands find the cluster.
func (b *Bed) Env() []string {
	return append(os.Environ(), "JAVA_HOME="+b.java, "HADOOP_CONF_DIR="+b.layout.Conf, "YARN_CONF_DIR="+b.layout.Conf,
		"TMPDIR="+b.in("tmp"))
}

// JavaOptions are options of Java for processes that live for seconds or minutes. They save CPU time of compiling and
// verifying classes: a client of YARN needs a sixth less without verification.
const JavaOptions = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions " +
	"-XX:-BytecodeVerificationRemote"

// javaArgs returns the arguments of a Java virtual machine with a heap of at most that many MiB.
func (b *Bed) javaArgs(l Layout, heap int, class string, args ...string) []string {
	// Nothing is to stay in /tmp when the process is killed.
	all := append(strings.Fields(JavaOptions), "-Xmx"+strconv.Itoa(heap)+"m", "-Djava.io.tmpdir="+b.in("tmp"))
	// Hadoop's reflection needs them from Java 17 on.
	for _, open := range []string{"lang", "util", "net", "io", "math", "text", "util.concurrent"} {
		all = append(all, "--add-opens=java.base/java."+open+"=ALL-UNNAMED")
	}
	if b.secure {
		all = append(all, "-Djava.security.krb5.conf="+b.in("kdc", "krb5.conf"))
	}
	return append(append(all, "-cp", l.classpath(":"), class), args...)
}

func (b *Bed) in(path ...string) string { return filepath.Join(append([]string{b.dir}, path...)...) }

// LogTails returns the end of every daemon's log, for when something went wrong.
func (b *Bed) LogTails() string { return logs.Tails(b.logs) }

// Eventually calls a function until it returns nil, and returns its last error when the context ends.
func Eventually(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w; the last try: %w", ctx.Err(), err)
		}
	}
}

// URLs returns the base addresses of the web services of all ResourceManagers.
func (b *Bed) URLs() []string {
	switch {
	case b.ha:
		return []string{RMURL(1), RMURL(2)}
	case b.secure:
		return []string{fmt.Sprintf("https://%s:%d", RMHost(1), rmHTTPSPort)}
	}
	return []string{RMURL(1)}
}

// Admins returns the addresses of the administration protocol of all ResourceManagers.
func (b *Bed) Admins() []string {
	if b.ha {
		return []string{RMAdmin(1), RMAdmin(2)}
	}
	return []string{RMAdmin(1)}
}

// Ready returns when the active ResourceManager has that many NodeManagers running.
func (b *Bed) Ready(ctx context.Context, nodes int) error {
	o, err := b.HTTPOptions(Admin)
	if err != nil {
		return err
	}
	rm, err := yarn.NewRM(b.URLs(), o)
	if err != nil {
		return err
	}
	return Eventually(ctx, func(ctx context.Context) error {
		running, err := rm.Nodes(ctx, yarn.NodeRunning)
		if err == nil && len(running) < nodes {
			err = fmt.Errorf("%d of %d NodeManagers run", len(running), nodes)
		}
		return err
	})
}
