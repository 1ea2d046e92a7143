package hadoop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/model"
)

// heapVariable is the environment variable with the largest heap of Hadoop's daemons.
const heapVariable = "HADOOP_HEAPSIZE_MAX"

// Linger returns the shell script of the preStop hook. Somebody who deletes the pod waits there while the manager
// drains the worker, as long as the worker has to drain. A NodeManager that is decommissioned ends by itself, and the
// hook ends with it: until then it keeps the output of maps. Any other has drained when no container ran for some
// seconds; each of their processes has CONTAINER_ID in its environment.
//
// A hook of the kind sleep would not do: it ends neither with the container nor when the pod is deleted once more with
// a shorter time (Kubernetes 1.36). Every image of a NodeManager has bash, with which YARN starts containers.
func Linger(drain time.Duration, end time.Time, decommissioned bool) string {
	script := fmt.Sprintf("until=$(($(date +%%s) + %d))\n", int64(drain/time.Second))
	if !end.IsZero() {
		script += fmt.Sprintf("[ $until -lt %[1]d ] || until=%[1]d\n", end.Unix())
	}
	if decommissioned {
		return script + "left=$((until - $(date +%s)))\nexec sleep $((left > 0 ? left : 0))\n"
	}
	return script + `quiet=0
while [ $quiet -lt 4 ] && [ $(date +%s) -lt $until ]; do
  sleep 1
  if grep -qs CONTAINER_ID=container_ /proc/[0-9]*/environ; then quiet=0; else quiet=$((quiet + 1)); fi
done
`
}

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
