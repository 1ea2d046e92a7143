package experiment

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/observe/host"
)

// heard returns a channel that gets the moment at which somebody next reads the manifest of a pod, which the agent does
// some time after it was announced: it looks for changes once a second. In a cluster it is told of them.
func (k *kubelet) heard(p *pod) (read <-chan time.Time, stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nil, fmt.Errorf("watching the manifests: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	stop = func() { _ = f.Close() }
	if _, err := unix.InotifyAddWatch(fd, k.manifests, unix.IN_OPEN); err != nil {
		stop()
		return nil, nil, fmt.Errorf("watching the manifests: %w", err)
	}
	first := make(chan time.Time, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return // stopped
			}
			if now := time.Now(); opened(buf[:n], p.name+".yaml") {
				first <- now
				return
			}
		}
	}()
	return first, stop, nil
}

// opened reports whether a file of this name is among what inotify tells of.
func opened(events []byte, name string) bool {
	for e, rest, ok := host.NextInotifyEvent(events); ok; e, rest, ok = host.NextInotifyEvent(rest) {
		if string(e.Name) == name {
			return true
		}
	}
	return false
}
