package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/sandbox"
)

const (
	lostAfter = 5 * time.Second       // a value that was not repaired by then counts as lost
	readEvery = 50 * time.Microsecond // the kernel adds some
)

// overwriting is the input of helper overwrite.
type overwriting struct {
	Files  []overwritten
	Length time.Duration
	Seed   uint64
}

// overwritten is a file to overwrite, and its right value.
type overwritten struct {
	Path  string
	Value int64
}

// overwrite is the other writer of experiment drift.
func overwrite(in sandbox.HelperInput) error {
	var o overwriting
	if err := in.Decode(&o); err != nil {
		return err
	}
	return o.run(os.Stdout)
}

// run overwrites the files in turn at random moments, 20 to 60 ms apart, with random values. For each write it prints
// the number of the file, the microseconds until the value was right again (NaN: it never was), and those of its own
// longest gap between two reads.
func (o *overwriting) run(out io.Writer) error {
	var targets []target
	for _, file := range o.Files {
		fd, err := unix.Open(file.Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening %s: %w", file.Path, err)
		}
		t := target{fd: fd, want: strconv.AppendInt(nil, file.Value, 10), most: model.MaxShares}
		if filepath.Base(file.Path) == "cpu.weight" {
			t.most = 10000
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		return errors.New("there is no file to overwrite")
	}
	random := rand.New(rand.NewPCG(o.Seed, 0))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, end := 0, time.Now().Add(o.Length); time.Now().Before(end); i++ {
		load.Nap(20*time.Millisecond + time.Duration(random.Int64N(int64(40*time.Millisecond))))
		n := i % len(targets)
		took, late, err := targets[n].disturb(random)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%d %.1f %.1f\n", n, took, late); err != nil {
			return fmt.Errorf("printing a repair: %w", err)
		}
	}
	return nil
}

// target is an open file that is overwritten.
type target struct {
	fd   int
	want []byte // its right content, without the line's end
	most int64  // greatest value that the file takes
}

// disturb overwrites the file once. It returns the microseconds until the file was right again, and the longest gap
// between two reads.
func (t *target) disturb(random *rand.Rand) (took, late float64, err error) {
	value := 2 + random.Int64N(t.most-1)
	text := strconv.AppendInt(nil, value, 10)
	if bytes.Equal(text, t.want) {
		text = []byte("2")
	}
	start := time.Now()
	last := start
	if _, err := unix.Pwrite(t.fd, text, 0); err != nil {
		return 0, 0, fmt.Errorf("overwriting a weight: %w", err)
	}
	var buf [32]byte
	for {
		n, err := unix.Pread(t.fd, buf[:], 0)
		if err != nil {
			return 0, 0, fmt.Errorf("reading a weight: %w", err)
		}
		now := time.Now()
		late = max(late, micros(now.Sub(last)))
		last = now
		if bytes.Equal(bytes.TrimSpace(buf[:n]), t.want) {
			return micros(now.Sub(start)), late, nil
		}
		if now.Sub(start) > lostAfter {
			// The next disturbance of this file must start from the right value.
			_, err := unix.Pwrite(t.fd, t.want, 0)
			return math.NaN(), late, err
		}
		load.Nap(readEvery)
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
