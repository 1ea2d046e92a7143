// Package yarn_test is level 6 of the test bed: the clients of internal/yarn, and what Waterline relies on in YARN,
// against a real ResourceManager, real NodeManagers and real jobs. make test-yarn builds what the tests need.
//
// The cluster is started once, with two NodeManagers in the default partition, or with -kerberos with one. Each test
// leaves them as they were.
package yarn_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

var pair = flag.Bool("pair", false, "two ResourceManagers and ZooKeeper, for the tests TestPair…")

var secure = flag.Bool("kerberos", false, "Kerberos, and TLS for the web, for the tests TestKerberos…")

var fair = flag.Bool("fair", false, "the FairScheduler, for the tests TestFair…")

// What each NodeManager's own configuration offers.
var offered = yarn.Resource{MemoryMiB: 2048, VCores: 4}

// bin is the directory of Waterline's programs.
var bin = os.Getenv("WATERLINE_BIN")

// The cluster and its clients. They are set once, before any test.
var (
	cluster *bed.Bed
	rm      *yarn.RM
	admin   *yarn.Admin
	nm      *yarn.NM
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "yarn:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	out, err := filepath.Abs("../../out")
	if err != nil {
		return 0, err
	}
	o := bed.Options{
		Lib: filepath.Join(out, "yarn/lib"), Dir: filepath.Join(out, "yarn/run"), Logs: filepath.Join(out, "test/log/yarn"),
		HA: *pair, Kerberos: *secure,
		// A ResourceManager must not take a NodeManager for dead that a busy machine only slows.
		Site: map[string]string{"yarn.nm.liveness-monitor.expiry-interval-ms": "60000"},
	}
	if *fair {
		o.Site["yarn.resourcemanager.scheduler.class"] =
			"org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler"
		o.Site["yarn.scheduler.fair.user-as-default-queue"] = "false" // a user root would have the queue above all
	}
	if testing.Short() { // nor must a master; in full form, tests end nodes of which masters must not wait for minutes
		o.Site["yarn.client.nodemanager-connect.max-wait-ms"] = "60000"
	}
	if os.Getenv("WATERLINE_VM") != "" { // an emulated CPU starts a master within minutes
		for _, name := range []string{
			"yarn.nm.liveness-monitor.expiry-interval-ms", "yarn.am.liveness-monitor.expiry-interval-ms",
			"yarn.client.nodemanager-connect.max-wait-ms", "yarn.rpc.nm-command-timeout",
		} {
			o.Site[name] = "1200000"
		}
	}
	if inside, code, err := bed.Enter(o.Dir, nil); !inside || err != nil {
		return code, err
	}
	start := time.Now()
	if cluster, err = bed.Up(o); err != nil {
		return 0, err
	}
	nodes := 2
	if *secure {
		nodes = 1
	}
	for i := 1; i <= nodes; i++ {
		if err := cluster.AddNode(i, int(offered.MemoryMiB), int(offered.VCores)); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := cluster.Ready(ctx, nodes); err != nil {
		return 0, errors.Join(err, errors.New(cluster.LogTails()))
	}
	fmt.Printf("YARN is up with %d nodes after %.1f s\n", nodes, time.Since(start).Seconds())
	if rm, admin, nm, err = clients(caller()); err != nil {
		return 0, err
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, cluster.LogTails())
	}
	return code, nil
}

// caller is who the tests' usual clients are.
func caller() string {
	if *secure {
		return bed.Admin
	}
	return "root"
}

// clients returns clients of the cluster that authenticate as a user or a principal.
func clients(who string) (*yarn.RM, *yarn.Admin, *yarn.NM, error) {
	o, err := cluster.HTTPOptions(who)
	if err != nil {
		return nil, nil, nil, err
	}
	rm, err := yarn.NewRM(cluster.URLs(), o)
	if err != nil {
		return nil, nil, nil, err
	}
	admin, err := yarn.NewAdmin(cluster.Admins(), yarn.AdminOptions{Auth: o.Auth})
	if err != nil {
		return nil, nil, nil, err
	}
	nm, err := yarn.NewNM(o)
	return rm, admin, nm, err
}

// soon returns a context for a call that usually takes less than a second. Its limit only ends a test that hangs.
func soon(t testing.TB) context.Context {
	t.Helper()
	return within(t, 5*time.Minute)
}

// eventually calls a function until it returns nil, and returns its last error when it has paused for three minutes.
func eventually(t testing.TB, try func(context.Context) error) (err error) {
	t.Helper()
	once := func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a test's own has ended when it cleans up
		defer cancel()
		err = try(ctx)
		return err == nil
	}
	if !poll.Until(3*time.Minute, 100*time.Millisecond, once) {
		return fmt.Errorf("three minutes later: %w", err)
	}
	return nil
}

// within returns a context for what must happen within a time.
func within(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// waitNode waits until a node is as wanted, and returns it.
func waitNode(t testing.TB, id, want string, ok func(yarn.Node) bool) yarn.Node {
	t.Helper()
	var node yarn.Node
	err := eventually(t, func(ctx context.Context) (err error) {
		if node, err = rm.Node(ctx, id); err == nil && !ok(node) {
			err = fmt.Errorf("%s is not %s: %+v", id, want, node)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// running waits until a node is in state RUNNING.
func running(t testing.TB, i int) yarn.Node {
	t.Helper()
	return waitNode(t, bed.NodeID(i), "running", func(n yarn.Node) bool { return n.State == yarn.NodeRunning })
}

// elastic is the number of a node with the label [bed.Label]. labelled starts it.
const elastic = 3

// labelled makes sure that the elastic node runs. The label is put on its host before the NodeManager exists.
func labelled(t testing.TB) {
	t.Helper()
	if cluster.Node(elastic) != nil {
		return
	}
	ctx := soon(t)
	if err := rm.AddLabel(ctx, yarn.Label{Name: bed.Label, Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	if err := rm.SetNodeLabels(ctx, map[string]string{bed.NodeHost(elastic): bed.Label}); err != nil {
		t.Fatal(err)
	}
	if _, err := rm.Node(ctx, bed.NodeID(elastic)); !errors.Is(err, yarn.ErrNotFound) {
		t.Fatalf("%s exists before it was started: %v", bed.NodeID(elastic), err)
	}
	if err := cluster.AddNode(elastic, int(offered.MemoryMiB), int(offered.VCores)); err != nil {
		t.Fatal(err)
	}
	running(t, elastic)
}

// job starts a job's client, and returns it with its application's id.
func job(t testing.TB, c *exec.Cmd) (*bed.Job, string) {
	t.Helper()
	j, err := bed.StartJob(c)
	if err != nil {
		t.Fatal(err)
	}
	id, err := j.ID(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	kill(t, id)
	return j, id
}

// kill ends an application when the test ends.
func kill(t testing.TB, id string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if _, err := bed.Kill(ctx, rm, id); err != nil {
			t.Errorf("killing %s: %v", id, err)
		}
	})
}
