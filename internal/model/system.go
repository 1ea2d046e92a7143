package model

import "strings"

// The node's own services are sampled as pods are, in four groups. No pod has such a UID, because a pod's begins with
// a letter or a digit. In the order of UIDs, the groups stand before all pods.
const (
	SystemKernel   = "/kernel"   // kernel threads that work for everybody
	SystemKubelet  = "/kubelet"  // the kubelet
	SystemRuntime  = "/runtime"  // the container runtime, and its processes beside containers
	SystemServices = "/services" // other services of system.slice
)

// SystemGroups returns the groups of the node's own services, in order.
func SystemGroups() [4]string {
	return [...]string{SystemKernel, SystemKubelet, SystemRuntime, SystemServices}
}

// IsSystem reports whether a UID is that of a group of the node's own services, not of a pod.
func IsSystem(uid string) bool { return strings.HasPrefix(uid, "/") }

// SystemName returns the name of a group of the node's own services, for people.
func SystemName(uid string) string {
	switch uid {
	case SystemKernel:
		return "kernel threads"
	case SystemRuntime:
		return "container runtime"
	case SystemServices:
		return "system services"
	}
	return strings.TrimPrefix(uid, "/")
}
