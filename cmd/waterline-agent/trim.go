package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// trimAfter is how long the agent works before what only its start needed is given back.
const trimAfter = 5 * time.Second

// trim gives back, once the agent works, what only its start needed: the garbage of the first list of pods, and the
// pages of the executable, which the kernel maps sixteen at a time around each that is used (fault-around). An unmapped
// page of a file is the first to be reclaimed when memory is short; one that is used again comes back from the page
// cache. Measured with 110 pods on 6.18: 20.7 MB resident before, 8.3 MB after.
func trim(ctx context.Context, ready func() error) error {
	tick := time.NewTicker(trimAfter)
	defer tick.Stop()
	for done := false; !done; done = ready() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	debug.FreeOSMemory()
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("giving back pages of the executable: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("giving back pages of the executable: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil {
			return fmt.Errorf("giving back pages of the executable: %q: %w", lines.Text(), err)
		}
		// What can be written holds values that are not in the file.
		if !strings.HasSuffix(lines.Text(), executable) || strings.Contains(mode, "w") {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("giving back pages of the executable: %w", errno)
		}
	}
	return nil
}
