package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/bed/cluster"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// hadoopNamespace has the pods of YARN.
const hadoopNamespace = "yarn"

// yarnPods is a YARN cluster in pods of the node, with clients that reach it.
type yarnPods struct {
	*hadoop.Pods
	t     *testing.T
	rm    *yarn.RM
	admin *yarn.Admin
	nm    *yarn.NM
}

// newYARN starts a ResourceManager, a NodeManager in the default partition, and a pod for jobs' clients. The namespace
// exists. They end with the test. The cluster has the label [hadoop.Label], and no node has it.
func newYARN(t *testing.T) *yarnPods {
	t.Helper()
	archive := filepath.Join(built, "yarn/hadoop.tar")
	if _, err := os.Stat(archive); err != nil && os.Getenv("CI") == "" {
		t.Skipf("no image of Hadoop; make hadoop-image builds it: %v", err)
	}
	if err := bed.Import(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	pods, err := hadoop.NewPods(hadoop.PodOptions{
		Namespace: hadoopNamespace, Domain: cluster.ClusterDomain, Shared: bed.Shared(), Lib: filepath.Join(built, "yarn/lib"),
		Exec: func(ctx context.Context, pod string, command ...string) *exec.Cmd {
			return bed.Kubectl(ctx, append([]string{"exec", "-n", hadoopNamespace, pod, "--"}, command...)...)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{Resolver: bed.Resolver()}
	web := yarn.HTTPOptions{Auth: yarn.Auth{User: "root"}, Transport: &http.Transport{DialContext: dialer.DialContext}}
	y := &yarnPods{Pods: pods, t: t}
	if y.nm, err = yarn.NewNM(web); err != nil {
		t.Fatal(err)
	}
	if y.rm, err = yarn.NewRM([]string{pods.RMURL()}, web); err != nil {
		t.Fatal(err)
	}
	if y.admin, err = yarn.NewAdmin([]string{pods.RMAdmin()}, y.rm, yarn.AdminOptions{
		Auth: yarn.Auth{User: "root"}, Dial: dialer.DialContext,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, app := range []string{"resourcemanager", "nodemanager"} {
				out, _ := tryKubectl("logs", "-n", hadoopNamespace, "-l", "app="+app, "--prefix", "--tail=100")
				t.Logf("the log of %s:\n%s", app, out)
			}
		}
	})
	apply(t, pods.Manifest(1024, 2))
	kubectl(t, "wait", "-n", hadoopNamespace, "--for=condition=Ready", "pod/rm", "pod/client",
		"pod/"+hadoop.FixedNode, ready)
	if err := y.rm.AddLabel(t.Context(), yarn.Label{Name: hadoop.Label, Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	y.until(hadoop.FixedNode, yarn.NodeRunning)
	return y
}

// until waits until the NodeManager of a pod is in a state, and returns it.
func (y *yarnPods) until(pod string, state yarn.NodeState) yarn.Node {
	y.t.Helper()
	var node yarn.Node
	eventually(y.t, pod+" is "+string(state), func() (bool, string) {
		var err error
		node, err = y.rm.Node(y.t.Context(), y.NodeID(pod))
		return err == nil && node.State == state, fmt.Sprintf("%+v, %v", node, err)
	})
	return node
}

// killContainer kills the container of a pod, as the kernel does when memory is short, and waits until the kubelet has
// started it again.
func (y *yarnPods) killContainer(pod string) {
	y.t.Helper()
	status := func() corev1.ContainerStatus {
		s := object[corev1.Pod](y.t, "pod", pod, "-n", hadoopNamespace).Status.ContainerStatuses
		if len(s) != 1 {
			return corev1.ContainerStatus{}
		}
		return s[0]
	}
	before := status()
	_, id, _ := strings.Cut(before.ContainerID, "://")
	if out, err := (here{}).ctr("task", "kill", "-s", "SIGKILL", id); err != nil {
		y.t.Fatalf("killing the container of %s: %v: %s", pod, err, out)
	}
	eventually(y.t, pod+" is ready again", func() (bool, string) {
		now := status()
		return now.RestartCount > before.RestartCount && now.Ready, fmt.Sprintf("%+v", now)
	})
}

// job starts a job's client, and returns it with its application's id. The job ends with the test.
func (y *yarnPods) job(c *exec.Cmd) (*hadoop.Job, string) {
	y.t.Helper()
	j, err := hadoop.StartJob(c)
	if err != nil {
		y.t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(y.t.Context(), mostWait)
	defer cancel()
	id, err := j.ID(soon)
	if err != nil {
		y.t.Fatal(err)
	}
	y.t.Cleanup(func() {
		// The ResourceManager may be gone already.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := y.rm.Kill(ctx, id); err != nil && !errors.Is(err, yarn.ErrNotFound) {
			y.t.Logf("killing %s: %v", id, err)
		}
	})
	return j, id
}

// finish waits until a job has succeeded.
func (y *yarnPods) finish(j *hadoop.Job) {
	y.t.Helper()
	ctx, cancel := context.WithTimeout(y.t.Context(), mostWait)
	defer cancel()
	if err := j.Wait(ctx); err != nil {
		y.t.Fatal(err)
	}
}

// onLabel are options of a MapReduce job: its maps run on nodes with the label, and its master elsewhere.
var onLabel = []string{"-Dmapreduce.map.node-label-expression=" + hadoop.Label}

// TestYARN runs jobs on a NodeManager in a batch pod.
func TestYARN(t *testing.T) {
	started := time.Now()
	took := func(what string) {
		t.Logf("%s: %.1f s", what, time.Since(started).Seconds())
		started = time.Now()
	}
	n := install(t, "--set", "manager.enabled=true,manager.replicas=1,manager.extraArgs={--back-after=5s}")
	kubectl(t, "rollout", "status", "deployment/waterline-manager", "-n", "waterline-system", ready)
	n.policy(selling("Enforce", "Static", false))
	t.Cleanup(n.dropPolicy)
	took("installing Waterline")
	makeNamespace(t, hadoopNamespace, "pod-security.kubernetes.io/enforce: restricted")
	y := newYARN(t)
	took("starting YARN")
	const cpu, memory = 200, 1408 << 20
	eventually(t, "the node offers what the NodeManager requests", func() (bool, string) {
		has := [2]int64{n.published(false, model.TierBatch, false), n.published(true, model.TierBatch, false)}
		return has[0] >= cpu && has[1] >= memory, fmt.Sprint(has)
	})
	took("waiting for the offer")

	const elastic = "elastic-0"
	if err := y.rm.SetNodeLabels(t.Context(), map[string]string{y.NodeHost(elastic): hadoop.Label}); err != nil {
		t.Fatal(err)
	}
	apply(t, y.Node(hadoop.NodePod{
		Name: elastic, Labels: map[string]string{"waterline.io/qos": "BE"}, MemoryMiB: 1024, VCores: 4,
		Resources: fmt.Sprintf(`requests: {cpu: %dm, memory: "%d"}, limits: {cpu: 1500m, memory: 3Gi}`, cpu, memory),
	}))
	node := y.until(elastic, yarn.NodeRunning)
	took("starting an elastic NodeManager")
	if len(node.Labels) != 1 || node.Labels[0] != hadoop.Label || node.Host != y.NodeHost(elastic) {
		t.Errorf("the NodeManager registered as %+v", node)
	}
	pod := object[corev1.Pod](t, "pod", elastic, "-n", hadoopNamespace)
	batch := corev1.ResourceName(v1alpha1.SlackResource("batch", true, false))
	if is := pod.Spec.Containers[0].Resources.Requests[batch]; is.Value() != memory {
		t.Errorf("the pod requests %d of %s, want %d", is.Value(), batch, int64(memory))
	}
	n.expect(t, n.dirOf(&pod), model.Quota, 150_000)
	n.expect(t, n.dirOf(&pod), model.MemoryMax, 3<<30)

	j, id := y.job(y.Sleep(t.Context(), 3, 1, 5*time.Second, onLabel...))
	eventually(t, "maps run in the pod's cgroup", func() (bool, string) {
		maps := n.processes(n.dirOf(&pod), id)
		return len(maps) > 0, j.Output()
	})
	took("submitting a job and starting its maps")
	y.finish(j)
	took("the rest of the job")
	app, err := y.rm.App(t.Context(), id)
	if err != nil || app.FinalStatus != "SUCCEEDED" || app.MasterNode != y.NodeID(hadoop.FixedNode) {
		t.Errorf("the application: %+v, %v", app, err)
	}

	rows, err := y.NewRows("rows", 20_000, 2)
	if err != nil {
		t.Fatal(err)
	}
	j, _ = y.job(y.Sort(t.Context(), rows, 1, onLabel...))
	y.finish(j)
	if err := rows.Check(); err != nil {
		t.Error(err)
	}
	took("a sort")

	y.killContainer("rm")
	y.until(hadoop.FixedNode, yarn.NodeRunning)
	if node := y.until(elastic, yarn.NodeRunning); len(node.Labels) != 1 || node.Labels[0] != hadoop.Label {
		t.Errorf("after a kill of the ResourceManager, the NodeManager has the labels %q", node.Labels)
	}
	took("killing the ResourceManager")

	kubectl(t, "delete", "pod", elastic, "-n", hadoopNamespace, "--wait=false")
	y.until(elastic, yarn.NodeShutdown)
	took("deleting the elastic NodeManager")
}

// processes returns the command lines of processes of a pod in which a word is.
func (n *node) processes(pod, word string) []string {
	var found []string
	files, _ := filepath.Glob(filepath.Join(n.OfKnob(model.Shares), pod, "*/cgroup.procs"))
	for _, file := range files {
		pids, _ := os.ReadFile(file)
		for _, pid := range strings.Fields(string(pids)) {
			line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if strings.Contains(string(line), word) {
				found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
	}
	return found
}
