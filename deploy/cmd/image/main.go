// Command image builds a container image for this machine's architecture without a container engine: one layer of the
// given files, written as an archive that docker load, ctr image import and podman load accept.
//
//	go run ./deploy/cmd/image -name waterline/agent:dev -o agent.tar -entrypoint /bin/waterline-agent \
//		out/bin/waterline-agent=/bin/waterline-agent
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/waterline-io/waterline/deploy/image"
)

func main() {
	i := image.Image{Architecture: runtime.GOARCH}
	name := flag.String("name", "", "name and tag of the image")
	out := flag.String("o", "", "archive to write")
	entrypoint := flag.String("entrypoint", "", "program to run, with arguments after spaces")
	flag.StringVar(&i.User, "user", "0", "user to run as")
	links := flag.String("links", "", "comma-separated LINK=TARGET symbolic links")
	flag.Usage = func() {
		w := flag.CommandLine.Output()
		fmt.Fprintln(w, "usage: image -name NAME:TAG -o ARCHIVE -entrypoint PROGRAM FILE=PATH...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *name == "" || *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	i.Entrypoint = strings.Fields(*entrypoint)
	i.Links = strings.FieldsFunc(*links, func(r rune) bool { return r == ',' })
	i.Files = flag.Args()
	if err := i.Archive(*name, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}
