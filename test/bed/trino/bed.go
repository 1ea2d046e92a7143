// Package trino runs a real coordinator and real workers of Trino on this machine for tests, each a process of its own.
//
// It needs the namespaces of the YARN test bed: call its Enter first. Every server has a loopback address of its own,
// so the ports are the usual ones.
package trino

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/test/bed/logs"
	"github.com/waterline-io/waterline/test/bed/yarn"
)

// Version of Trino. It is the newest that Java 17 runs.
const Version = "435"

// Port of every server.
const Port = 8080

// User is who may shut workers down.
const User = "waterline"

// Options say what to bring up.
type Options struct {
	Out  string // directory of build.sh: lib and launcher
	Dir  string // directory for configuration and state, empty
	Logs string // directory for logs; emptied first
	Heap int    // of each server in MiB
}

// Bed is a Trino cluster.
type Bed struct {
	o       Options
	servers map[string]*yarn.Daemon
}

// Up starts a coordinator. It does not wait until it works.
func Up(o Options) (*Bed, error) {
	jars, _ := filepath.Glob(filepath.Join(o.Out, "lib", "trino-main-*.jar"))
	if len(jars) == 0 {
		return nil, fmt.Errorf("no Trino in %s; run test/bed/trino/build.sh", o.Out)
	}
	if err := errors.Join(os.RemoveAll(o.Logs), os.MkdirAll(o.Logs, 0o755)); err != nil {
		return nil, err
	}
	b := &Bed{o: o, servers: map[string]*yarn.Daemon{}}
	if err := b.plugin(); err != nil {
		return nil, fmt.Errorf("making the plugin of TPC-H: %w", err)
	}
	return b, b.start("coordinator", CoordinatorHost, map[string]string{
		"coordinator": "true", "node-scheduler.include-coordinator": "false",
	}, nil)
}

// plugin makes the folder of the plugin of TPC-H. The published jar lacks the file that names its class.
func (b *Bed) plugin() error {
	dir := filepath.Join(b.o.Dir, "plugin", "tpch")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	jars, err := filepath.Glob(filepath.Join(b.o.Out, "lib", "*.jar"))
	if err != nil {
		return err
	}
	for _, jar := range jars {
		if err := os.Symlink(jar, filepath.Join(dir, filepath.Base(jar))); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(dir, "service.jar"))
	if err != nil {
		return err
	}
	z := zip.NewWriter(file)
	w, err := z.Create("META-INF/services/io.trino.spi.Plugin")
	if err == nil {
		_, err = w.Write([]byte("io.trino.plugin.tpch.TpchPlugin\n"))
	}
	return errors.Join(err, z.Close(), file.Close())
}

// CoordinatorHost is the address of the coordinator.
const CoordinatorHost = "127.2.0.100"

// Coordinator is the base address of the coordinator.
var Coordinator = url(CoordinatorHost)

func url(host string) string { return fmt.Sprintf("http://%s:%d", host, Port) }

// Worker returns a worker, counted from 1 to 99.
func Worker(i int) drain.Worker {
	host := fmt.Sprintf("127.2.0.%d", i)
	return drain.Worker{Host: host, URL: url(host)}
}

// Rules is an access control that lets [User] shut workers down.
var Rules = map[string]string{
	"access-control.properties": "access-control.name=file\nsecurity.config-file=etc/rules.json\n",
	"rules.json":                `{"system_information": [{"user": "` + User + `", "allow": ["read", "write"]}]}`,
}

// StartWorker starts a worker, counted from 1 to 99, with files in its etc, such as [Rules]. It does not wait until the
// worker registers.
func (b *Bed) StartWorker(i int, properties, files map[string]string) error {
	all := map[string]string{"coordinator": "false"}
	maps.Copy(all, properties)
	return b.start(fmt.Sprintf("worker%d", i), Worker(i).Host, all, files)
}

// Server returns the process of a worker, counted from 1.
func (b *Bed) Server(i int) *yarn.Daemon { return b.servers[fmt.Sprintf("worker%d", i)] }

func (b *Bed) start(name, host string, properties, files map[string]string) error {
	dir := filepath.Join(b.o.Dir, name)
	all := map[string]string{
		"http-server.http.port": fmt.Sprint(Port), "discovery.uri": Coordinator, "node.environment": "bed",
		"node.internal-address": host, "node.bind-ip": host, "node.id": strings.ReplaceAll(host, ".", "-"),
	}
	maps.Copy(all, properties)
	content := map[string]string{"config.properties": Properties(all), "catalog/tpch.properties": "connector.name=tpch\n"}
	maps.Copy(content, files)
	for path, text := range content {
		path = filepath.Join(dir, "etc", path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return fmt.Errorf("configuring %s: %w", name, err)
		}
	}
	if err := os.Symlink(filepath.Join(b.o.Dir, "plugin"), filepath.Join(dir, "plugin")); err != nil && !os.IsExist(err) {
		return fmt.Errorf("configuring %s: %w", name, err)
	}
	b.servers[name] = b.daemon(name, dir, nil)
	return b.servers[name].Start()
}

// daemon returns a server whose etc is in a directory. It is not started.
func (b *Bed) daemon(name, dir string, env []string) *yarn.Daemon {
	return yarn.NewDaemon(name, filepath.Join(b.o.Logs, name+".log"), func() *exec.Cmd {
		c := exec.Command("java", append(strings.Fields(yarn.JavaOptions), fmt.Sprintf("-Xmx%dm", b.o.Heap),
			"--add-opens=java.base/java.nio=ALL-UNNAMED", "-Djava.io.tmpdir="+dir,
			"-Dconfig=etc/config.properties", "-cp",
			filepath.Join(b.o.Out, "launcher")+":"+filepath.Join(b.o.Out, "lib")+"/*", "Launcher", Version)...)
		c.Dir, c.Env = dir, append(os.Environ(), env...)
		return c
	})
}

// Pod writes the files of a worker's container, by their paths in it, and returns the worker. It is not started. It
// does what Trino's own launcher does: it reads node.properties too. The address is the worker's alone, as a pod's is.
func (b *Bed) Pod(name, address string, files map[string]string, env []string) (*yarn.Daemon, error) {
	dir := filepath.Join(b.o.Dir, "pods", name)
	config := files["/etc/trino/config.properties"] + "node.bind-ip=" + address + "\nnode.id=" + name + "\n"
	for line := range strings.Lines(files["/etc/trino/node.properties"]) {
		if !strings.HasPrefix(line, "node.data-dir=") { // the launcher's own
			config += line
		}
	}
	for path, content := range files {
		if path == "/etc/trino/config.properties" {
			content = config
		}
		content = strings.ReplaceAll(content, "=/etc/trino", "="+dir+"/etc/trino") // where a container has its files
		path = filepath.Join(dir, path)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
		if err != nil {
			return nil, fmt.Errorf("configuring %s: %w", name, err)
		}
	}
	for link, to := range map[string]string{"plugin": filepath.Join(b.o.Dir, "plugin"), "etc/config.properties": dir +
		"/etc/trino/config.properties"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil && !os.IsExist(err) {
			return nil, fmt.Errorf("configuring %s: %w", name, err)
		}
	}
	return b.daemon(name, dir, env), nil
}

// Properties writes a file of properties.
func Properties(all map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s=%s\n", name, all[name])
	}
	return b.String()
}

// Down ends every process.
func (b *Bed) Down(ctx context.Context) error {
	var all error
	for _, d := range b.servers {
		all = errors.Join(all, d.Kill(ctx))
	}
	return all
}

// LogTails returns the end of every server's log, for when something went wrong.
func (b *Bed) LogTails() string { return logs.Tails(b.o.Logs) }
