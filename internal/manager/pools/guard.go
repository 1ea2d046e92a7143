package pools

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

const (
	// guardContainer is the name of the guard's container.
	guardContainer = "guard"
	// allowancePath is the file that the kubelet makes of the annotation.
	allowancePath = "/etc/waterline/allowance"
)

// guardAmount is what a guard requests, and its limit of memory.
func guardAmount() model.Amount { return model.Amount{CPU: 20, Memory: 32 << 20} }

// guardCPULimit is the CPU limit of a guard in mCPU. A round in which processes are looked at takes some milliseconds.
const guardCPULimit = 200

// addGuard adds the guard to a worker's pod, if its image is known. It is a sidecar: it starts before the NodeManager
// and ends after it. The pod requests no more with it than without: its request is a part of the overhead.
func (r *round) addGuard(p *corev1.Pod) {
	y := r.p.Spec.YARN
	spec := y.Guard
	if spec == nil {
		spec = &v1alpha1.GuardSpec{}
	}
	image := cmp.Or(spec.Image, r.k.c.o.GuardImage)
	if image == "" {
		return
	}
	amount, all := guardAmount(), r.read.Floor.Plus(r.read.Overhead)
	amount = model.Amount{CPU: min(amount.CPU, all.CPU/2), Memory: min(amount.Memory, all.Memory/2)}
	take(kube.Worker(&p.Spec), amount)
	args := []string{"--allowance=" + allowancePath, "--nodemanager=http://127.0.0.1:" + strconv.Itoa(webPort),
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
	if spec.LinuxContainerExecutor {
		// Only root has added capabilities without any right of its executable file. Environments are files of mode 0400,
		// which SYS_PTRACE alone does not open. DAC_OVERRIDE is among a runtime's defaults; DAC_READ_SEARCH, which would
		// do, opens files outside of the container by handle.
		args = append(args, "--other-users")
		security.RunAsUser, security.RunAsNonRoot = &root, &no
		security.Capabilities.Add = []corev1.Capability{"KILL", "SYS_PTRACE", "DAC_OVERRIDE"}
	}
	limits := amountList(amount)
	limits[corev1.ResourceCPU] = amountList(model.Amount{CPU: guardCPULimit})[corev1.ResourceCPU]
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
		Name: guardContainer, Image: image, Args: args, RestartPolicy: &always, SecurityContext: security,
		Env:       []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: strconv.FormatInt(amount.Memory*3/4, 10)}},
		Resources: corev1.ResourceRequirements{Requests: amountList(amount), Limits: limits},
		VolumeMounts: []corev1.VolumeMount{
			{Name: guardContainer, MountPath: path.Dir(allowancePath), ReadOnly: true},
		},
	})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: guardContainer, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{
				Path: path.Base(allowancePath),
				FieldRef: &corev1.ObjectFieldSelector{
					FieldPath: "metadata.annotations['" + v1alpha1.AnnotationPoolAllowance + "']",
				},
			}},
		}},
	})
	p.Annotations[v1alpha1.AnnotationPoolAllowance] = allowanceText(r.settings().Floor, time.Time{})
}

// encrypted reports whether an address is one of https. The guard's image has no certificates of authorities.
func encrypted(address string) bool { return !strings.HasPrefix(address, "http://") }

// take makes a container request so much less, and limits it to so much less.
func take(c *corev1.Container, a model.Amount) {
	for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name, less := range amountList(a) {
			q := list[name]
			q.Sub(less)
			list[name] = q
		}
	}
}

// notice is how many times the grace before its end a worker that is to stop has an allowance of nothing, so that its
// guard tells executors to leave. Where the ResourceManager decommissions workers gracefully, it tells them.
const notice = 2

// allowance returns the annotation for the guard of a worker after its next step: the size that its deadline is for, or
// without a deadline its total. What is not known stays as it is. So does the allowance of a worker that drains with a
// total of zero: its containers keep what they have until shortly before its end.
func (r *round) allowance(pl *place, s *pool.Step) string {
	if !pl.pod.guarded {
		return pl.pod.allowance
	}
	m, _ := pl.worker.Manager()
	switch {
	case !s.By.IsZero() && !r.in.Settings.Graceful && r.now.After(s.By.Add(-notice*r.in.Settings.Grace)):
		return allowanceText(pool.Size{}, s.By)
	case !s.Marks.Until.IsZero():
		return allowanceText(s.Marks.Into, s.Marks.Until)
	case r.view == nil:
	case s.Verb == pool.Resize && s.Size != (pool.Size{}):
		return allowanceText(s.Size, time.Time{})
	case s.Verb != pool.Resize && m != nil && m.Total != (pool.Size{}):
		return allowanceText(m.Total, time.Time{})
	}
	return pl.pod.allowance
}

// allowanceText returns an allowance as the annotation has it.
func allowanceText(size pool.Size, until time.Time) string {
	a := struct {
		MemoryMiB int64     `json:"memoryMiB"`
		VCores    int64     `json:"vcores"`
		Until     time.Time `json:"until,omitzero"`
	}{size.MemoryMiB, size.VCores, until.UTC()}
	text, err := json.Marshal(a)
	if err != nil {
		return "" // numbers and times can be written
	}
	return string(text)
}
