package sandbox

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/observe/host"
)

// ManifestRead returns a channel that receives the moment at which the agent next reads the manifest of a pod. The
// agent looks for changed manifests once a second; in a cluster a watch event brings them.
func (s *Sandbox) ManifestRead(p *Pod) (read <-chan time.Time, stop func(), err error) {
	return s.kubelet.manifestRead(p)
}

func (k *kubelet) manifestRead(p *Pod) (read <-chan time.Time, stop func(), err error) {
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
			if now := time.Now(); opened(buf[:n], p.Name+".yaml") {
				first <- now
				return
			}
		}
	}()
	return first, stop, nil
}

// opened reports whether inotify events name a file.
func opened(events []byte, name string) bool {
	for e, rest, ok := host.NextInotifyEvent(events); ok; e, rest, ok = host.NextInotifyEvent(rest) {
		if string(e.Name) == name {
			return true
		}
	}
	return false
}
