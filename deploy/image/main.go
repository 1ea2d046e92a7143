// Command image builds a container image without a container engine: one layer of the given files, written as an
// archive that docker load, ctr image import and podman load accept. The same files give the same bytes.
//
//	go run ./deploy/image -name waterline/agent:dev -o agent.tar -entrypoint /waterline-agent \
//		out/bin/waterline-agent=/waterline-agent
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	var i image
	flag.StringVar(&i.name, "name", "", "name and tag of the image")
	out := flag.String("o", "", "archive to write")
	entrypoint := flag.String("entrypoint", "", "program to run, with arguments after spaces")
	flag.StringVar(&i.user, "user", "0", "user to run as")
	links := flag.String("links", "", "comma-separated LINK=TARGET symbolic links")
	flag.Usage = func() {
		w := flag.CommandLine.Output()
		fmt.Fprintln(w, "usage: image -name NAME:TAG -o ARCHIVE -entrypoint PROGRAM FILE=PATH...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if i.name == "" || *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	i.entrypoint = strings.Fields(*entrypoint)
	i.links = strings.FieldsFunc(*links, func(r rune) bool { return r == ',' })
	i.files = flag.Args()
	if err := i.write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}
