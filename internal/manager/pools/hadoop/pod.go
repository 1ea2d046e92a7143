package hadoop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/model"
)

// heapVariable is the environment variable with the largest heap of Hadoop's daemons.
const heapVariable = "HADOOP_HEAPSIZE_MAX"

// WaitIdle is the shell script of the preStop hook of a NodeManager that is not decommissioned. Somebody who deletes
// the pod waits there while the manager drains the worker, until the time in the variable until at most. It has drained
// when no container ran for some seconds; each of their processes has CONTAINER_ID in its environment.
const WaitIdle = `quiet=0
while [ $quiet -lt 4 ] && [ $(date +%s) -lt $until ]; do
  sleep 1
  if grep -qs CONTAINER_ID=container_ /proc/[0-9]*/environ; then quiet=0; else quiet=$((quiet + 1)); fi
done
`

// Environment returns the variables of the NodeManager: the template's, and those of the pool, which go before. Only
// the size of the heap is the template's to choose.
func Environment(given []corev1.EnvVar, host string, floor model.Size, overheadMiB int64) []corev1.EnvVar {
	all := map[string]string{
		"HADOOP_CONF_DIR": ConfDir, hostVariable: host,
		MemoryVariable: strconv.FormatInt(floor.MemoryMiB, 10), VCoresVariable: strconv.FormatInt(floor.VCores, 10),
	}
	if !slices.ContainsFunc(given, func(e corev1.EnvVar) bool { return e.Name == heapVariable }) {
		all[heapVariable] = fmt.Sprintf("%dm", max(overheadMiB/2, 128)) // Java needs as much besides
	}
	var list []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, corev1.EnvVar{Name: name, Value: all[name]})
	}
	for _, e := range given {
		if _, ours := all[e.Name]; !ours {
			list = append(list, e)
		}
	}
	return list
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
