package host

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// inotifyBytes returns an event as the kernel writes it.
func inotifyBytes(watch int32, mask uint32, name string) []byte {
	padded := make([]byte, (len(name)+15)/16*16)
	copy(padded, name)
	b := binary.NativeEndian.AppendUint32(nil, uint32(watch))
	b = binary.NativeEndian.AppendUint32(b, mask)
	b = binary.NativeEndian.AppendUint32(b, 0) // cookie
	b = binary.NativeEndian.AppendUint32(b, uint32(len(padded)))
	return append(b, padded...)
}

func TestNextInotifyEvent(t *testing.T) {
	write, remove := inotifyBytes(7, 2, "cpu.weight"), inotifyBytes(-1, 1<<14, "")
	long := inotifyBytes(7, 2, "0123456789abcdef") // a name that leaves no room for a zero
	for _, c := range []struct {
		name string
		buf  []byte
		want []InotifyEvent
	}{
		{"nothing", nil, nil},
		{"one event", write, []InotifyEvent{{7, 2, []byte("cpu.weight")}}},
		{"an event without a name", remove, []InotifyEvent{{-1, 1 << 14, []byte{}}}},
		{"two events", append(append([]byte{}, write...), remove...),
			[]InotifyEvent{{7, 2, []byte("cpu.weight")}, {-1, 1 << 14, []byte{}}}},
		{"a name without padding", long, []InotifyEvent{{7, 2, []byte("0123456789abcdef")}}},
		{"a buffer that ends in the header", write[:15], nil},
		{"a buffer that ends in the name", write[:20], nil},
		{"a whole event and half of one", append(append([]byte{}, remove...), write[:20]...),
			[]InotifyEvent{{-1, 1 << 14, []byte{}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []InotifyEvent
			for e, rest, ok := NextInotifyEvent(c.buf); ok; e, rest, ok = NextInotifyEvent(rest) {
				got = append(got, e)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = NextInotifyEvent(write) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func FuzzNextInotifyEvent(f *testing.F) {
	f.Add(inotifyBytes(7, 2, "cpu.weight"))
	f.Add(inotifyBytes(7, 2, "cpu.weight")[:20])
	f.Fuzz(func(t *testing.T, buf []byte) {
		length := len(buf)
		for _, rest, ok := NextInotifyEvent(buf); ok; _, rest, ok = NextInotifyEvent(rest) {
			if len(rest) >= length {
				t.Fatalf("%d bytes are left of %d", len(rest), length)
			}
			length = len(rest)
		}
	})
}
