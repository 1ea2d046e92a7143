// Package model holds the plain values that the parts of Waterline hand to each other: a node as it was observed, the
// policy that governs it, and the plan that was decided for it.
//
// It performs no I/O, knows no Kubernetes types and imports the standard library only. CPU is in milli-cores where an
// operator or a pod asked for it and in shares where pods compete for it; conversion to what a cgroup file holds happens
// at the edge, in package cgroup.
package model
