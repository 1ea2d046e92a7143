// Package e2e_test runs the agent against a real API server (TestAPI…, level 4) and as a DaemonSet on real nodes with
// real kubelets and real pods (TestNode…): on this machine (level 5a), or in a virtual machine with cgroup v2 and
// systemd (level 5b). It also runs on this machine beside a kubelet that gives containers exclusive CPUs (TestStatic…).
// The cluster is started once and ends with this process, however the process ends. make test-api, test-node,
// test-node-static and test-node-v2 build what the tests need.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/test/bed/cluster"
	"github.com/waterline-io/waterline/test/bed/trino"
	"github.com/waterline-io/waterline/test/bed/vm"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

var on = flag.String("on", "host",
	"what to run on: api (no node), apart (the same, and can be up beside it), yarn (no node, and a real "+
		"ResourceManager), trino (no node, and a real coordinator), host, static (the host, CPU manager policy static), "+
		"or vm (a second node, besides the host's)")

var pair = flag.Bool("pair", false, "with -on=yarn: two ResourceManagers and ZooKeeper, for the tests TestPoolPair…")

var kerberos = flag.Bool("kerberos", false, "with -on=yarn: Kerberos and https, for the tests TestKerberosPool…")

var programs = flag.String("bin", "bed/bin",
	"directory of Kubernetes' programs below out/: bed/oldest/bin for the oldest supported version")

// soak selects the full forms.
var soak = os.Getenv("WATERLINE_SOAK") != ""

// bed is the cluster; built is the directory of programs and images. Both are set once, before any test.
var (
	bed   *cluster.Bed
	built string
)

// hadoopBed is the YARN cluster beside the API server; nil without -on=yarn. It is set once, before any test.
var hadoopBed *hadoop.Bed

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	var err error
	if built, err = filepath.Abs("../../out"); err != nil {
		return 0, err
	}
	images, err := filepath.Glob(filepath.Join(built, "bed/images/*.tar"))
	if err != nil {
		return 0, err
	}
	// The one test that needs this image loads it.
	images = slices.DeleteFunc(images, func(file string) bool { return filepath.Base(file) == ffmpegArchive })
	// An emulated machine was seen to boot for minutes.
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	nodeless := slices.Contains([]string{"api", "apart", "yarn", "trino"}, *on)
	o := cluster.Options{Bin: filepath.Join(built, *programs), Node: !nodeless, Static: *on == "static", Images: images,
		Leash: true, ShortBackOff: soak} // the full form of TestYARNRestarts ends containers 200 times
	if *on == "vm" {
		if o.VM, err = vm.FetchKernel(ctx, filepath.Join(built, "vm/kernel")); err != nil {
			return 0, err
		}
		o.Images = append(o.Images, previousImages()...) // no image can be imported into a running guest
	}
	if *on == "apart" {
		dir := filepath.Join(built, "test/run-apart")
		if inside, code, err := hadoop.Enter(dir, nil); !inside || err != nil {
			return code, err
		}
		o.Dir = filepath.Join(dir, "api")
	}
	if *on == "yarn" {
		with := hadoop.Options{
			Lib: filepath.Join(built, "yarn/lib"), Dir: filepath.Join(built, "yarn/run-pools"),
			Logs: filepath.Join(built, "test/log/yarn-pools"), HA: *pair, Kerberos: *kerberos,
			// Masters of the queue with the default label run on fixed nodes.
			Site: map[string]string{
				"yarn.resourcemanager.node-labels.am.default-node-label-expression": " ",
				"yarn.resourcemanager.nodemanagers.heartbeat-interval-ms":           "1000", // as in production
			},
		}
		if *pair {
			with.Logs += "-pair"
		}
		if *kerberos {
			with.Logs += "-kerberos"
		}
		// API server, manager, ResourceManager and NodeManagers share a loopback device that nobody else has.
		if inside, code, err := hadoop.Enter(with.Dir, nil); !inside || err != nil {
			return code, err
		}
		if hadoopBed, err = hadoop.Up(with); err != nil {
			return 0, err
		}
		if err := hadoopBed.AddNode(1, 4096, 16); err != nil { // in the default partition, for masters
			return 0, err
		}
		o.Dir = filepath.Join(with.Dir, "api")
	}
	if *on == "trino" {
		with := trino.Options{
			Out: filepath.Join(built, "trino"), Dir: filepath.Join(built, "trino/run-pools"),
			Logs: filepath.Join(built, "test/log/trino-pools"), Heap: 768,
		}
		if inside, code, err := hadoop.Enter(with.Dir, nil); !inside || err != nil {
			return code, err
		}
		if trinoBed, err = trino.Up(with); err != nil {
			return 0, err
		}
		o.Dir = filepath.Join(with.Dir, "api")
	}
	if bed, err = cluster.Up(ctx, o); err != nil {
		return 0, err
	}
	if out, err := bed.Kubectl(ctx, "apply", "-f", "../../deploy/chart/crds").CombinedOutput(); err != nil {
		return 0, errors.Join(fmt.Errorf("installing the custom resources: %w: %s", err, out), bed.Down(context.Background()))
	}
	if hadoopBed != nil {
		if err := hadoopBed.Ready(ctx, 1); err != nil {
			return 0, errors.Join(err, bed.Down(context.Background()), errors.New(hadoopBed.LogTails()))
		}
	}
	kept = filepath.Join(built, "test/journals", *on)
	if err := os.RemoveAll(kept); err != nil {
		return 0, errors.Join(err, bed.Down(context.Background()))
	}
	code := m.Run()
	if err := replayKept(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = max(code, 1)
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, bed.LogTails())
		if hadoopBed != nil {
			fmt.Fprintln(os.Stderr, hadoopBed.LogTails())
		}
	}
	return code, bed.Down(context.Background())
}

// kubectl runs kubectl and returns its output.
func kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := tryKubectl(args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// tryKubectl runs kubectl and returns its output. If it fails, its warnings and errors come first.
func tryKubectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), mostWait+time.Minute)
	defer cancel()
	var out, complaints bytes.Buffer
	c := bed.Kubectl(ctx, args...)
	c.Stdout, c.Stderr = &out, &complaints
	err := c.Run()
	if err != nil {
		return strings.TrimSpace(complaints.String() + out.String()), err
	}
	return strings.TrimSpace(out.String()), nil
}

// apply applies a manifest, and deletes its objects when the test ends.
func apply(t testing.TB, manifest string) {
	t.Helper()
	if out, err := tryApply(manifest); err != nil {
		t.Fatalf("applying: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := withManifest(manifest, "delete", "--ignore-not-found", "--grace-period=0", "--force"); err != nil {
			t.Errorf("deleting: %v: %s", err, out)
		}
	})
}

// makeNamespace makes a namespace with labels, and waits until pods can be made there. It is deleted when the test
// ends.
func makeNamespace(t testing.TB, name, labels string) {
	t.Helper()
	apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", name, labels))
	eventually(t, "an account for pods in "+name, func() (bool, string) {
		out, err := tryKubectl("get", "serviceaccount", "default", "-n", name)
		return err == nil, out
	})
}

// tryApply applies a manifest that may be refused. Its objects stay.
func tryApply(manifest string) (string, error) { return withManifest(manifest, "apply") }

// withManifest passes a manifest to a verb of kubectl.
func withManifest(manifest string, verb ...string) (string, error) {
	c := bed.Kubectl(context.Background(), append(verb, "-f", "-")...)
	c.Stdin = strings.NewReader(manifest)
	out, err := c.CombinedOutput()
	return string(out), err
}

// control starts, stops or kills a component of the cluster.
func control(t testing.TB, verb, component string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := bed.Control(ctx, verb, component); err != nil {
		t.Fatal(err)
	}
}

// startAPI starts the killed API server, and waits until it answers. Kubernetes' controllers are restarted too. After
// an outage of a minute, the garbage collector of 1.36.3, with the etcd 3.4 used here, never removed dependents of a
// Deployment or DaemonSet that was deleted in the next minute.
func startAPI(t testing.TB) {
	t.Helper()
	control(t, "start", "apiserver")
	eventually(t, "the API server", func() (bool, string) {
		out, err := tryKubectl("get", "--raw", "/readyz")
		return err == nil, out
	})
	control(t, "restart", "controller-manager")
}

// documents reads the objects in kubectl's output, one after the other.
func documents[T any](t testing.TB, content []byte) []T {
	t.Helper()
	var all []T
	for decoder := json.NewDecoder(bytes.NewReader(content)); ; {
		var o T
		switch err := decoder.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

// explains waits until the output of waterline explain contains a text. The kernel has a value before the round ends
// whose reasons are explained.
func explains(t testing.TB, args, words []string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the output of explain %s is %q", strings.Join(args, " "), words), func() (bool, string) {
		out, err := program("waterline", append([]string{"explain"}, args...)...)
		return err == nil && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(out, w) }),
			fmt.Sprintf("%v: %s", err, out)
	})
}

// program runs one of our programs and returns its output.
func program(name string, args ...string) (string, error) {
	c := exec.Command(filepath.Join(built, "bin", name), args...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// helm runs helm against the cluster.
func helm(t testing.TB, args ...string) string {
	t.Helper()
	c := exec.Command(filepath.Join(built, "bin/helm"), append(args, "--kubeconfig", bed.Kubeconfig())...)
	c.Env = append(os.Environ(), "GOGC=off")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// installChart installs the chart with values, or upgrades it, in a namespace that admits the agents' pods. The
// cluster's default level of Pod Security does not.
func installChart(t testing.TB, values ...string) {
	t.Helper()
	if out, err := tryApply(`{apiVersion: v1, kind: Namespace, metadata: {name: waterline-system, ` +
		`labels: {pod-security.kubernetes.io/enforce: privileged}}}`); err != nil {
		t.Fatalf("making the namespace: %v: %s", err, out)
	}
	helm(t, append([]string{"upgrade", "--install", "waterline", "../../deploy/chart", "--namespace", "waterline-system"},
		values...)...)
}

// groups reads and writes the cgroup files of a machine.
type groups struct {
	machine
	host.Mount
}

// newGroups returns the cgroups of this machine.
func newGroups(t testing.TB) groups {
	t.Helper()
	mount, err := host.FindMount(host.DefaultRoot)
	if err != nil {
		t.Fatal(err)
	}
	return groups{here{}, mount}
}

func (g groups) path(dir string, k model.Knob) string {
	return filepath.Join(g.OfKnob(k), dir, cgroup.FileName(g.Version, k))
}

// get returns a knob in the kernel's unit; -2: the knob does not exist.
func (g groups) get(dir string, k model.Knob) int64 {
	content, err := g.readFile(g.path(dir, k))
	if err != nil {
		return -2
	}
	raw, err := cgroup.Parse(g.Version, k, content, cgroup.Raw{})
	if err != nil {
		return -3
	}
	return raw.Number
}

// is reports whether a knob holds a value, in the knob's unit.
func (g groups) is(dir string, k model.Knob, value int64) bool {
	return g.get(dir, k) == cgroup.ToRaw(g.Version, k, model.Number(value)).Number
}

// text returns the content of a knob's file for a value.
func (g groups) text(k model.Knob, value int64) string {
	return strings.TrimSpace(string(cgroup.Append(nil, g.Version, k, cgroup.ToRaw(g.Version, k, model.Number(value)))))
}

// set writes a knob as another writer would.
func (g groups) set(t testing.TB, dir string, k model.Knob, value int64) {
	t.Helper()
	if err := g.writeFile(g.path(dir, k), []byte(g.text(k, value))); err != nil {
		t.Fatal(err)
	}
}

// expect waits until a knob has a value, in the knob's unit.
func (g groups) expect(t testing.TB, dir string, k model.Knob, value int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s %s = %d", dir, k, value), func() (bool, string) {
		return g.is(dir, k, value), fmt.Sprint(g.get(dir, k))
	})
}

// mostWait is how long a test waits for something that must happen, at any speed, without the time of its checks. A pod
// of an emulated node was seen to take two minutes beside other work. Constant ready passes it to kubectl.
const (
	mostWait = 4 * time.Minute
	ready    = "--timeout=4m"
)

// oneNode skips a test on the node of the virtual machine in short form, where this machine's node stands for both. The
// emulated one takes many times as long.
func oneNode(t *testing.T, why string) {
	t.Helper()
	if !bothNodes() {
		t.Skipf("in short form, this machine's node stands for both: %s", why)
	}
}

// bothNodes reports whether the selected node runs the tests that are alike on both nodes.
func bothNodes() bool { return *on != "vm" || soak }

// eventually waits until a condition holds. Each check takes CPU from the awaited action, most of all with kubectl, and
// [poll.Until] leaves most of it to the action.
func eventually(t testing.TB, what string, holds func() (bool, string)) {
	t.Helper()
	var instead string
	held := poll.Until(mostWait, 50*time.Millisecond, func() (ok bool) {
		ok, instead = holds()
		return ok
	})
	if !held {
		t.Fatalf("not within %s: %s; instead %s", mostWait, what, instead)
	}
}
