// Command release makes the images of a release from programs that are built: an OCI layout for each image, and a
// bill of materials for each program. With a registry, it pushes images and bills, and writes down what it has pushed.
//
//	go run ./deploy/cmd/release -version 0.2.0 -bin out/release/bin -o out/release -registry registry.example/mirror
//
// The programs are in folders such as out/release/bin/linux-arm64.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	r := release{products: products}
	flag.StringVar(&r.version, "version", "", "version of the release, and tag of its images")
	flag.StringVar(&r.commit, "commit", "", "commit that the programs were built from")
	flag.StringVar(&r.bin, "bin", "", "directory of the built programs")
	flag.StringVar(&r.out, "o", "", "directory for images and bills of materials")
	flag.StringVar(&r.registry, "registry", "", "registry to push to, with a path if it has one (default: do not push)")
	flag.BoolVar(&r.plainHTTP, "plain-http", false, "the registry has no TLS")
	flag.Parse()
	if r.version == "" || r.bin == "" || r.out == "" || flag.NArg() > 0 {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: release -version VERSION -bin DIRECTORY -o DIRECTORY")
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
