package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// How long a guest may be silent: while it boots, if the configuration says nothing else, and between its beats. Both
// are generous, for a machine that is busy with something else.
const (
	bootLimit    = 2 * time.Minute
	silenceLimit = time.Minute
)

// boots is how often a guest is started that hangs. An emulated machine of 8 CPUs was seen to hang while it booted, on
// a host with 2 busy CPUs, and one of 2 CPUs while its kernel patched itself. What is tested would let the next one
// hang too.
const boots = 2

// A guest gets this long after its own timeout, to end commands and to send files, and this long to switch off.
const (
	finishLimit   = 2 * time.Minute
	poweroffLimit = 10 * time.Second
)

// Run boots a guest, runs the commands in it and switches it off. How commands ended is in the report; the error is
// about everything else and wraps ErrGuest if it is the guest's. When Run returns, qemu is gone.
func Run(ctx context.Context, c Config) (Report, error) {
	initrd, log, err := openFiles(c)
	if err != nil {
		return Report{}, err
	}
	defer initrd.Close()
	defer log.Close()
	if err := fillInitramfs(ctx, initrd, c); err != nil {
		return Report{}, err
	}

	for try := 1; ; try++ {
		report, err := runGuest(ctx, c, initrd, log)
		if !errors.Is(err, errHangs) || try == boots || ctx.Err() != nil {
			return report, err
		}
		c.Log.Warn("booting again", "err", err)
	}
}

// runGuest runs one qemu from its start to its end.
func runGuest(ctx context.Context, c Config, initrd *os.File, log io.Writer) (Report, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout+finishLimit,
		fmt.Errorf("%w: it is not done %v after its timeout of %v", ErrGuest, finishLimit, c.Timeout))
	defer cancel()
	m, err := startQemu(c, initrd, log)
	if err != nil {
		return Report{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = m.process.Kill() })
	defer stop()

	s := session{c: c, m: m, began: began}
	err = s.follow()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("stopped: %w", cause)
	}
	if errors.Is(err, errHangs) {
		m.examine()
	}
	m.end(err == nil)
	if filesErr := s.endFiles(err); err == nil {
		err = filesErr
	}
	s.report.Total = time.Since(began)
	if errors.Is(err, ErrGuest) {
		err = fmt.Errorf("%w%s", err, m.lastWords())
	}
	return s.report, err
}

// openFiles opens the file for the initramfs and the log of the console.
func openFiles(c Config) (initrd *os.File, log io.WriteCloser, err error) {
	if c.KeepDir == "" {
		initrd, err = openScratch(c.Scratch)
		return initrd, nopCloser{io.Discard}, err
	}
	if err := os.MkdirAll(c.KeepDir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("making a folder to keep: %w", err)
	}
	if initrd, err = os.Create(filepath.Join(c.KeepDir, "initramfs.cpio")); err != nil {
		return nil, nil, fmt.Errorf("making the initramfs: %w", err)
	}
	if log, err = os.Create(filepath.Join(c.KeepDir, "console.log")); err != nil {
		initrd.Close()
		return nil, nil, fmt.Errorf("making the log of the console: %w", err)
	}
	return initrd, log, nil
}

// openScratch makes a file without a name, which cannot be left behind.
func openScratch(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a folder for the initramfs: %w", err)
	}
	f, err := os.CreateTemp(dir, ".initramfs-")
	if err != nil {
		return nil, fmt.Errorf("making the initramfs: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("removing the name of the initramfs: %w", err)
	}
	return f, nil
}

type nopCloser struct{ io.Writer }

// Close implements [io.Closer].
func (nopCloser) Close() error { return nil }
