// Package cgroup knows what the kernel's cgroup files are called and how they read, on cgroup v1 and v2, and how
// kubelets and container runtimes name the directories of pods and containers.
//
// It turns bytes into values and values into bytes, and orders writes so that the kernel accepts them. It performs no
// I/O.
package cgroup
