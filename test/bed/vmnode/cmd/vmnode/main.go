// Command vmnode is process 1 of a node in a virtual machine until its root file system is mounted, and later the
// server of files and commands in it.
package main

import (
	"fmt"
	"os"

	"github.com/waterline-io/waterline/test/bed/vmnode"
)

func main() {
	serve := vmnode.Serve
	if vmnode.IsInit() {
		serve = vmnode.Init
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "vmnode:", err)
		os.Exit(1)
	}
}
