package hadoop

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// executorProperty is the property of the class that starts containers.
const executorProperty = "yarn.nodemanager.container-executor.class"

// executorClass is its value; "": the pool's ConfigMap and properties say it.
func executorClass(e v1alpha1.ContainerExecutor) string {
	const common = "org.apache.hadoop.yarn.server.nodemanager."
	switch e {
	case v1alpha1.ExecutorDefault:
		return common + "DefaultContainerExecutor"
	case v1alpha1.ExecutorLinux:
		return common + "LinuxContainerExecutor"
	}
	return ""
}

// LetExecute lets a NodeManager start containers as other users: its program container-executor has the mode 6050 of
// root. The NodeManager itself has none of these capabilities, because it is not root. They are for what the program
// does: it changes to the user, gives directories to the user with their set-group-ID bit, deletes them, and signals
// processes. It was not run.
func LetExecute(w *corev1.Container) {
	w.SecurityContext.AllowPrivilegeEscalation = new(true)
	w.SecurityContext.Capabilities.Add = []corev1.Capability{
		"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
	}
}
