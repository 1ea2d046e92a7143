// Package cgroup defines the names and formats of the kernel's cgroup files, on cgroup v1 and v2, and the directory
// names that kubelets and container runtimes give to pods and containers. It parses and formats file content, converts
// shares and weights, and orders writes so that the kernel accepts each. It performs no I/O.
//
// It stands in for github.com/opencontainers/cgroups because the agent reads and writes single files of cgroups that
// other programs own: it needs parsers that do not allocate, and the order of writes to many groups at once.
package cgroup
