// Package model contains the plain values that the parts of Waterline exchange: a node as observed, the policy that
// governs it, and the plan decided for it.
//
// It performs no I/O, knows no Kubernetes types and imports the standard library only. CPU requests and limits are in
// milli-cores; weights are in shares. Package cgroup converts both to the contents of cgroup files.
package model
