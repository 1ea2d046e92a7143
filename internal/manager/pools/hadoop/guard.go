package hadoop

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// GuardContainer is the name of the guard's container.
	GuardContainer = "guard"
	// allowancePath is the file that the kubelet makes of the annotation.
	allowancePath = "/etc/waterline/allowance"
)

const (
	guardCPU, guardMemory = 20, 32 << 20 // what a guard requests, in mCPU and bytes, and its limit of memory
	// guardCPULimit is the CPU limit of a guard in mCPU. A round in which processes are looked at takes some milliseconds.
	guardCPULimit = 200
)

// AddGuard adds a guard with an image to a worker's pod, which requests so much in all. It is a sidecar: it starts
// before the NodeManager and ends after it. The pod requests no more with it than without: its request is a part of the
// overhead. allowance is the annotation that it reads, as it is at first.
func AddGuard(p *corev1.Pod, y *v1alpha1.YARNSpec, image string, all model.Amount, allowance string) {
	spec := y.Guard
	if spec == nil {
		spec = &v1alpha1.GuardSpec{}
	}
	if y.ContainerExecutor != v1alpha1.ExecutorLinux { // its guard is root, which no image of a tenant becomes
		image = cmp.Or(spec.Image, image)
	}
	if image == "" {
		return
	}
	amount := model.Amount{CPU: min(guardCPU, all.CPU/2), Memory: min(guardMemory, all.Memory/2)}
	take(kube.Worker(&p.Spec), amount)
	args := []string{"--allowance=" + allowancePath, "--nodemanager=http://127.0.0.1:" + strconv.Itoa(yarn.WebPort),
		"--user=" + y.User}
	if y.AuthSecret == nil && !slices.ContainsFunc(y.ResourceManagers, encrypted) { // the guard has no keys of the pool
		for _, address := range y.ResourceManagers {
			args = append(args, "--resourcemanager="+address)
		}
	}
	if n := spec.KillsPerMinute; n != nil {
		args = append(args, "--kills-per-minute="+strconv.Itoa(int(*n)))
	}
	if n := spec.HardMemoryPercent; n != nil {
		args = append(args, "--hard-memory-percent="+strconv.Itoa(int(*n)))
	}
	always, no, yes, root := corev1.ContainerRestartPolicyAlways, false, true, int64(0)
	security := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if y.ContainerExecutor == v1alpha1.ExecutorLinux {
		// Only root has added capabilities without any right of its executable file. Environments are files of mode 0400,
		// which SYS_PTRACE alone does not open. DAC_OVERRIDE is among a runtime's defaults; DAC_READ_SEARCH, which would
		// do, opens files outside of the container by handle.
		args = append(args, "--other-users")
		security.RunAsUser, security.RunAsNonRoot = &root, &no
		security.Capabilities.Add = []corev1.Capability{"KILL", "SYS_PTRACE", "DAC_OVERRIDE"}
	}
	limits := kube.ResourceList(amount)
	limits[corev1.ResourceCPU] = kube.ResourceList(model.Amount{CPU: guardCPULimit})[corev1.ResourceCPU]
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
		Name: GuardContainer, Image: image, Args: args, RestartPolicy: &always, SecurityContext: security,
		Resources: corev1.ResourceRequirements{Requests: kube.ResourceList(amount), Limits: limits},
		VolumeMounts: []corev1.VolumeMount{
			{Name: GuardContainer, MountPath: path.Dir(allowancePath), ReadOnly: true},
		},
	})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: GuardContainer, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{
				Path: path.Base(allowancePath),
				FieldRef: &corev1.ObjectFieldSelector{
					FieldPath: "metadata.annotations['" + v1alpha1.AnnotationPoolAllowance + "']",
				},
			}},
		}},
	})
	p.Annotations[v1alpha1.AnnotationPoolAllowance] = allowance
}

// encrypted reports whether an address is one of https. The guard's image has no certificates of authorities.
func encrypted(address string) bool { return !strings.HasPrefix(address, "http://") }

// take makes a container request so much less, and limits it to so much less.
func take(c *corev1.Container, a model.Amount) {
	for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name, less := range kube.ResourceList(a) {
			q := list[name]
			q.Sub(less)
			list[name] = q
		}
	}
}
