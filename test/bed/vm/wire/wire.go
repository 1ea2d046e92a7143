// Package wire is what the host and the guest of a test-bed VM tell each other: a plan, which travels to the guest as a
// file of its initramfs, and frames, which travel back over a serial port.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Where both sides expect things in the guest.
const (
	InitPath = "/init" // where the kernel looks for it
	PlanPath = "/plan.json"
	OutDir   = "/out"
	Port     = "/dev/ttyS1"
)

// BeatEvery is how often the guest shows that it lives.
const BeatEvery = 2 * time.Second

// Plan is what a guest is to do.
type Plan struct {
	Hostname string
	Env      []string
	Commands []Command
	// Timeout is how long after boot the guest interrupts the command that runs and skips the rest.
	Timeout time.Duration
	// SendOut asks for the files under OutDir.
	SendOut bool
}

// Command is one program to run, with a name for messages.
type Command struct {
	Name string
	Argv []string
}

// Hello is the guest's first word: it is ready to run commands.
type Hello struct {
	Release     string
	Controllers string
}

// Exit is how a command ended.
type Exit struct {
	Name string
	// Code is the exit status, or 128 and the number of the signal that ended the program, as a shell has it. It is
	// 127 if the program could not be started.
	Code     int
	Took     time.Duration
	TimedOut bool
	Skipped  bool
	Err      string
	// Leftovers are the cgroups that the command left behind and that the guest then removed.
	Leftovers []string
}

// Kind says what the payload of a frame is.
type Kind byte

// The kinds of frames, in the order in which a guest sends them. Beats may stand anywhere.
const (
	KindHello  Kind = 'H' // a Hello
	KindStart  Kind = 'S' // the name of a command
	KindOutput Kind = 'O' // bytes that the command wrote
	KindExit   Kind = 'X' // an Exit
	KindFiles  Kind = 'F' // the next bytes of a gzipped tar archive of OutDir
	KindBeat   Kind = 'B' // nothing
	KindError  Kind = 'E' // why the guest gives up
	KindDone   Kind = 'D' // nothing; the last frame
)

// The preamble stands before the first frame, because a serial port that is probed during boot may emit stray bytes.
const preamble = "\nwaterline-vm 1\n"

const (
	headerSize = 5
	maxPayload = 32 << 10
)

// Writer sends frames. It may be used by several goroutines.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewWriter sends the preamble and returns a Writer for the frames.
func NewWriter(w io.Writer) (*Writer, error) {
	if _, err := io.WriteString(w, preamble); err != nil {
		return nil, fmt.Errorf("sending the preamble: %w", err)
	}
	return &Writer{w: w}, nil
}

// Send sends the payload in as many frames as it needs, at least one.
func (w *Writer) Send(k Kind, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for first := true; first || len(payload) > 0; first = false {
		n := min(len(payload), maxPayload)
		w.buf = append(w.buf[:0], byte(k))
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(n))
		w.buf = append(w.buf, payload[:n]...)
		if _, err := w.w.Write(w.buf); err != nil {
			return fmt.Errorf("sending a frame of kind %q: %w", k, err)
		}
		payload = payload[n:]
	}
	return nil
}

// SendJSON sends v, which must fit into one frame.
func (w *Writer) SendJSON(k Kind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a frame of kind %q: %w", k, err)
	}
	if len(b) > maxPayload {
		return fmt.Errorf("encoding a frame of kind %q: %d bytes, more than %d", k, len(b), maxPayload)
	}
	return w.Send(k, b)
}

// Stream returns an io.Writer whose bytes go out as frames of one kind.
func (w *Writer) Stream(k Kind) io.Writer { return stream{w, k} }

type stream struct {
	w *Writer
	k Kind
}

func (s stream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.w.Send(s.k, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ErrCorrupt is returned for bytes that are no frame.
var ErrCorrupt = errors.New("not a frame")

// Reader receives frames.
type Reader struct {
	r      io.Reader
	header [headerSize]byte
	buf    []byte
	synced bool
}

// NewReader returns a Reader of the frames in r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: r, buf: make([]byte, maxPayload)}
}

// Next returns the next frame. The payload is valid until the next call. The error is io.EOF only where a frame could
// begin.
func (r *Reader) Next() (Kind, []byte, error) {
	if !r.synced {
		if err := r.sync(); err != nil {
			return 0, nil, err
		}
		r.synced = true
	}
	if _, err := io.ReadFull(r.r, r.header[:]); err != nil {
		return 0, nil, err
	}
	k, n := Kind(r.header[0]), binary.BigEndian.Uint32(r.header[1:])
	if n > maxPayload || !k.known() {
		return 0, nil, fmt.Errorf("header %q: %w", r.header[:], ErrCorrupt)
	}
	if _, err := io.ReadFull(r.r, r.buf[:n]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return k, r.buf[:n], nil
}

// sync reads up to the end of the preamble. Its first byte occurs in it only where it can begin or end, so that a
// failed match need not be looked at again.
func (r *Reader) sync() error {
	var b [1]byte
	for matched := 0; matched < len(preamble); {
		if _, err := io.ReadFull(r.r, b[:]); err != nil {
			return err
		}
		switch b[0] {
		case preamble[matched]:
			matched++
		case preamble[0]:
			matched = 1
		default:
			matched = 0
		}
	}
	return nil
}

func (k Kind) known() bool {
	switch k {
	case KindHello, KindStart, KindOutput, KindExit, KindFiles, KindBeat, KindError, KindDone:
		return true
	}
	return false
}
