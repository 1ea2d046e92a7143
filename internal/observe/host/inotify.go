package host

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// InotifyEvent is one event from an inotify instance (struct inotify_event in inotify(7)).
type InotifyEvent struct {
	Watch int32  // watch descriptor
	Mask  uint32 // unix.IN_MODIFY and others
	Name  []byte // of a file in the watched directory, part of the buffer; empty: the directory itself
}

// NextInotifyEvent splits the first event off a buffer that was read from an inotify instance. It returns false if the
// buffer is empty or ends within the event. It does not allocate.
func NextInotifyEvent(b []byte) (e InotifyEvent, rest []byte, ok bool) {
	if len(b) < unix.SizeofInotifyEvent {
		return InotifyEvent{}, nil, false
	}
	// The fields are wd, mask, cookie and len, of 4 bytes each, then the name, padded with zeros to len bytes.
	size := uint64(binary.NativeEndian.Uint32(b[12:]))
	name := b[unix.SizeofInotifyEvent:]
	if size > uint64(len(name)) {
		return InotifyEvent{}, nil, false
	}
	name, rest = name[:size], name[size:]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return InotifyEvent{
		Watch: int32(binary.NativeEndian.Uint32(b)),
		Mask:  binary.NativeEndian.Uint32(b[4:]),
		Name:  name,
	}, rest, true
}
