package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// busyNode is a fake node with real processes in the cgroups of its pods.
type busyNode struct {
	*fake
	client *rest.RESTClient
	born   int // containers so far
	procs  []*os.Process
}

// newBusyNode returns a node without pods.
func newBusyNode(t *testing.T) *busyNode {
	t.Helper()
	admin, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS, admin.Burst = -1, -1
	client, err := kube.NewClient(admin)
	if err != nil {
		t.Fatal(err)
	}
	c := &busyNode{fake: newFake(t), client: client}
	t.Cleanup(c.disperse)
	return c
}

// request returns the resources of a container that requests some CPU.
func request(cpu string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
}

// createIn makes a pod of a QoS class, which must follow from the requests of its first container.
func (c *busyNode) createIn(class model.QoSClass, meta metav1.ObjectMeta, first corev1.ResourceRequirements) (dir,
	uid string) {
	c.t.Helper()
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	meta.Labels["crowd"] = "yes"
	pod := &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{NodeName: fakeNode, Containers: []corev1.Container{
			{Name: "a", Image: "none", Resources: first}, {Name: "b", Image: "none"},
		}},
	}
	made := &corev1.Pod{}
	post := c.client.Post().Namespace("default").Resource("pods").Body(pod)
	if err := post.Do(context.Background()).Into(made); err != nil {
		c.t.Fatal(err)
	}
	dir = c.layout.Pod(class, string(made.UID))
	c.mkdir(dir)
	return dir, string(made.UID)
}

// container makes the cgroup of a container.
func (c *busyNode) container(dir string) string {
	c.t.Helper()
	c.born++
	container := fmt.Sprintf("%s/%064x", dir, c.born)
	c.mkdir(container)
	return container
}

// exec starts a program in a cgroup.
func (c *busyNode) exec(dir, env string, args ...string) int {
	c.t.Helper()
	const enter = `until [ "$1" = -- ]; do echo $$ >"$1/$0/cgroup.procs" || exit; shift; done; shift; exec "$@"`
	into := append(append([]string{"-c", enter, dir}, c.others()...), c.Path, "--")
	cmd := exec.Command("sh", append(into, args...)...)
	cmd.Env = append(os.Environ(), env)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.procs = append(c.procs, cmd.Process)
	return cmd.Process.Pid
}

// disperse ends the processes and removes the pods.
func (c *busyNode) disperse() {
	for _, p := range c.procs {
		_ = p.Kill()
		_, _ = p.Wait()
	}
	kubectl(c.t, "delete", "pods", "-l", "crowd=yes", "--grace-period=0", "--force", "--wait=false")
}

// loaded makes a pod of a class with one container, and with a CFS quota unless that is 0.
func (c *busyNode) loaded(name, class string, milli int64) (container string) {
	c.t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	if class != "" {
		meta.Labels = map[string]string{v1alpha1.LabelQoS: class}
	}
	dir, _ := c.createIn(model.Burstable, meta, request("1m"))
	if milli > 0 {
		c.set(c.t, dir, model.Quota, milli*100)
	}
	return c.container(dir)
}

// burn starts a process that uses all the CPU it can get.
func (c *busyNode) burn(dir string) *os.Process {
	c.t.Helper()
	c.exec(dir, "", "busybox", "sh", "-c", "while :; do :; done")
	return c.procs[len(c.procs)-1]
}
