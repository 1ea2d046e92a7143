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

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/bed/cluster"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// hadoopNamespace has the pods of YARN.
const hadoopNamespace = "yarn"

// yarnPods is a YARN cluster in pods of the node, with a client of its ResourceManager.
type yarnPods struct {
	*hadoop.Pods
	t  *testing.T
	rm *yarn.RM
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
	if y.rm, err = yarn.NewRM([]string{pods.RMURL()}, web); err != nil {
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
		if _, err := hadoop.Kill(ctx, y.rm, id); err != nil && !errors.Is(err, yarn.ErrNotFound) {
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
