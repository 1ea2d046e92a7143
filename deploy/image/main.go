// Command image builds a container image without a container engine: one layer of the given files, written as an archive
// that docker load, ctr image import and podman load take. The same files give the same bytes.
//
//	go run ./deploy/image -name waterline/agent:dev -o agent.tar -entrypoint /waterline-agent out/bin/waterline-agent=/waterline-agent
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	name := flag.String("name", "", "name and tag of the image")
	out := flag.String("o", "", "archive to write")
	entrypoint := flag.String("entrypoint", "", "program to run, with arguments after spaces")
	user := flag.String("user", "0", "user to run as")
	links := flag.String("links", "", "comma-separated LINK=TARGET symbolic links")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: image -name NAME:TAG -o ARCHIVE -entrypoint PROGRAM FILE=PATH...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *name == "" || *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := build(*name, *out, strings.Fields(*entrypoint), *user, *links, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build writes the archive.
func build(name, out string, entrypoint []string, user, links string, files []string) error {
	// The layer is made twice, once for its digest and size, so that a large one need not fit into memory.
	digest, size := sha256.New(), new(counter)
	if err := writeLayer(io.MultiWriter(digest, size), files, links); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": entrypoint, "User": user, "Env": []string{"PATH=/bin:/usr/bin"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest.Sum(nil))}},
	})
	if err != nil {
		return fmt.Errorf("encoding the image's configuration: %w", err)
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return fmt.Errorf("encoding the image's manifest: %w", err)
	}
	// Written beside it first: whoever has the old archive open or linked keeps it, and half of one is never found.
	archive, err := os.CreateTemp(filepath.Dir(out), filepath.Base(out)+".*")
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	defer func() { _ = os.Remove(archive.Name()) }() // nothing to remove if all went well
	w := tar.NewWriter(archive)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "layer.tar", Mode: 0o644, Size: int64(*size)}),
		writeLayer(w, files, links),
		add(w, "config.json", 0o644, config),
		add(w, "manifest.json", 0o644, manifest),
		w.Close(), archive.Chmod(0o644), archive.Close(),
	)
	if err == nil {
		err = os.Rename(archive.Name(), out)
	}
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// writeLayer writes the file system: the files, given as FILE=PATH, links, and the directories that programs expect.
func writeLayer(to io.Writer, files []string, links string) error {
	w := tar.NewWriter(to)
	dirs := []string{"dev/", "etc/", "proc/", "run/", "sys/", "tmp/"}
	for _, f := range files {
		_, target, found := strings.Cut(f, "=")
		if !found {
			return fmt.Errorf("%q: write FILE=PATH", f)
		}
		for dir := path.Dir(strings.TrimPrefix(target, "/")); dir != "."; dir = path.Dir(dir) {
			dirs = append(dirs, dir+"/")
		}
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777 // for users other than root
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return fmt.Errorf("adding %s: %w", dir, err)
		}
	}
	for _, f := range files {
		source, target, _ := strings.Cut(f, "=")
		content, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("adding a file: %w", err)
		}
		if err := add(w, strings.TrimPrefix(target, "/"), 0o755, content); err != nil {
			return err
		}
	}
	for _, link := range strings.FieldsFunc(links, func(r rune) bool { return r == ',' }) {
		name, target, _ := strings.Cut(link, "=")
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(name, "/"), Linkname: target, Mode: 0o777}); err != nil {
			return fmt.Errorf("adding %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("writing the layer: %w", err)
	}
	return nil
}

func add(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	if _, err := io.Copy(w, bytes.NewReader(content)); err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}
