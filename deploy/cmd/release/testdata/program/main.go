// Command program stands for a program of a release. It is small, and has one module beside the standard library.
package main

import (
	"os"

	"k8s.io/utils/cpuset"
)

func main() { _, _ = os.Stdout.WriteString(cpuset.New(1, 2).String()) }
