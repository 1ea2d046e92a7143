package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("\xff\x00noise\n\nwater\nwat") // as from a port that is being probed
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("0123456789\r\n\x00\xff"), 10000)
	if _, err := w.Stream(KindOutput).Write(long); err != nil {
		t.Fatal(err)
	}
	if err := w.SendJSON(KindExit, Exit{Name: "a", Code: 3}); err != nil {
		t.Fatal(err)
	}
	if err := w.Send(KindDone, nil); err != nil {
		t.Fatal(err)
	}

	var out []byte
	var kinds string
	r := NewReader(&b)
	for {
		k, p, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if k == KindOutput {
			out = append(out, p...)
			continue
		}
		kinds += string(k)
	}
	if !bytes.Equal(out, long) {
		t.Errorf("read %d bytes of output, sent %d, or others", len(out), len(long))
	}
	if kinds != "XD" {
		t.Errorf("frames %q, want XD", kinds)
	}
}

func TestBrokenFrames(t *testing.T) {
	for _, tc := range []struct {
		bytes string
		want  error
	}{
		{"", io.EOF},
		{"no preamble", io.EOF},
		{preamble, io.EOF},
		{preamble + "D\x00", io.ErrUnexpectedEOF},
		{preamble + "O\x00\x00\x00\x05abc", io.ErrUnexpectedEOF},
		{preamble + "O\x00\x00\x00\x05", io.ErrUnexpectedEOF},
		{preamble + "?\x00\x00\x00\x00", ErrCorrupt},
		{preamble + "O\xff\x00\x00\x00", ErrCorrupt},
	} {
		if _, _, err := NewReader(bytes.NewReader([]byte(tc.bytes))).Next(); !errors.Is(err, tc.want) {
			t.Errorf("%q: error %v, want %v", tc.bytes, err, tc.want)
		}
	}
}
