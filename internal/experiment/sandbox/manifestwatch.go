package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
	for len(events) >= unix.SizeofInotifyEvent {
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[unix.SizeofInotifyEvent-4:]))
		if end > len(events) {
			return false
		}
		if file, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:end], []byte{0}); string(file) == name {
			return true
		}
		events = events[end:]
	}
	return false
}
