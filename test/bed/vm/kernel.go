package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// kernelPackages are the packages that depend on the newest kernel for virtual machines: of Debian, and of Ubuntu.
func kernelPackages() []string { return []string{"linux-image-cloud-amd64", "linux-image-virtual"} }

// FetchKernel returns the path of a kernel for guests. The first time it gets the distribution's kernel package with
// apt and unpacks it below cache, without installing it; after that it needs no network. [Module] finds its modules.
func FetchKernel(ctx context.Context, cache string) (string, error) {
	found, err := filepath.Glob(filepath.Join(cache, "*", "vmlinuz"))
	if err != nil {
		return "", fmt.Errorf("looking for a kernel in %s: %w", cache, err)
	}
	for _, kernel := range found {
		if _, err := os.Stat(modulesOf(kernel)); err == nil {
			return kernel, nil
		}
	}
	if runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("fetching a kernel: the packages are for amd64, this is %s", runtime.GOARCH)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("making the kernel cache: %w", err)
	}
	tmp, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return "", fmt.Errorf("making a folder for a kernel package: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	pkg, err := download(ctx, tmp)
	if err != nil && ctx.Err() == nil {
		// A new machine has no package lists, and an old list names files that are gone.
		if _, updateErr := output(ctx, "", "apt-get", "--quiet", "update"); updateErr != nil {
			return "", errors.Join(err, updateErr)
		}
		pkg, err = download(ctx, tmp)
	}
	if err != nil {
		return "", err
	}
	return unpackKernel(ctx, tmp, filepath.Join(cache, pkg))
}

// download puts the package with the kernel into dir and returns its name.
func download(ctx context.Context, dir string) (string, error) {
	pkg, err := resolveKernel(ctx)
	if err != nil {
		return "", err
	}
	// As root, apt would download as its own user, who cannot write here, and say so.
	_, err = output(ctx, dir, "apt-get", "--quiet", "--option", "APT::Sandbox::User=root", "download", pkg)
	return pkg, err
}

// unpackKernel takes the kernel out of the package in tmp and puts it into dir.
func unpackKernel(ctx context.Context, tmp, dir string) (string, error) {
	deb, err := one(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return "", err
	}
	if _, err := output(ctx, "", "dpkg-deb", "-x", deb, tmp); err != nil {
		return "", err
	}
	vmlinuz, err := one(filepath.Join(tmp, "boot", "vmlinuz-*"))
	if err != nil {
		return "", err
	}
	return keepKernel(tmp, vmlinuz, dir)
}

// modulesOf returns the folder of a kernel's modules.
func modulesOf(kernel string) string { return filepath.Join(filepath.Dir(kernel), "modules") }

// Module returns the file of a module of a kernel that FetchKernel fetched, "" if it has none: then it is built in.
func Module(kernel, name string) (string, error) {
	var found string
	err := filepath.WalkDir(modulesOf(kernel), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == name+".ko" {
			found = path
			return fs.SkipAll
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("looking for the module %s: %w", name, err)
	}
	return found, nil
}

// keepKernel puts the kernel, its modules and its configuration into dir, as a whole or not at all, so that two fetches
// at the same time do no harm.
func keepKernel(tmp, vmlinuz, dir string) (string, error) {
	kept := filepath.Join(tmp, "kept")
	if err := os.Mkdir(kept, 0o755); err != nil {
		return "", fmt.Errorf("keeping the kernel: %w", err)
	}
	if err := os.Rename(vmlinuz, filepath.Join(kept, "vmlinuz")); err != nil {
		return "", fmt.Errorf("keeping the kernel: %w", err)
	}
	if config, err := one(filepath.Join(tmp, "boot", "config-*")); err == nil {
		if err := os.Rename(config, filepath.Join(kept, "config")); err != nil {
			return "", fmt.Errorf("keeping the kernel's configuration: %w", err)
		}
	}
	if err := os.Rename(filepath.Join(tmp, "lib", "modules"), filepath.Join(kept, "modules")); err != nil {
		return "", fmt.Errorf("keeping the kernel's modules: %w", err)
	}
	path := filepath.Join(dir, "vmlinuz")
	if err := os.Rename(kept, dir); err != nil {
		if _, statErr := os.Stat(path); statErr != nil {
			return "", fmt.Errorf("keeping the kernel: %w", err)
		}
	}
	return path, nil
}

var dependency = regexp.MustCompile(`(?m)^\s*\|?Depends: (linux-image-\d\S*)$`)

// resolveKernel returns the name of the package that holds the kernel itself.
func resolveKernel(ctx context.Context) (string, error) {
	var errs []error
	for _, meta := range kernelPackages() {
		out, err := output(ctx, "", "apt-cache", "depends", meta)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if m := dependency.FindSubmatch(out); m != nil {
			return string(m[1]), nil
		}
		errs = append(errs, fmt.Errorf("apt-cache knows no kernel that %s depends on", meta))
	}
	return "", fmt.Errorf("looking for a kernel package: %w", errors.Join(errs...))
}

// one returns the only file that matches the pattern.
func one(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", pattern, err)
	}
	if len(found) != 1 {
		return "", fmt.Errorf("looking for %s: found %d files, want 1", pattern, len(found))
	}
	return found[0], nil
}

// output runs a tool in dir and returns what it prints; what it says when it fails becomes part of the error.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
