package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	lostAfter = 5 * time.Second       // a value that did not come back by then never will
	pollEvery = 50 * time.Microsecond // between two looks; the kernel adds some
)

// victim is a file that the outsider overwrites.
type victim struct {
	fd   int
	want []byte // what it reads when it is right, without the line's end
	most int64  // greatest value that the file takes
}

// outsider overwrites files in turn at random moments, 20 to 60 ms apart, with random values, and prints for each how many
// microseconds it took until the file was right again, NaN if it never was, and how many of them at most it was itself kept
// from looking.
func outsider(files []string, length time.Duration, seed uint64, out io.Writer) error {
	var victims []victim
	for _, file := range files {
		path, want, _ := strings.Cut(file, "=")
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
		v := victim{fd: fd, want: []byte(want), most: model.MaxShares}
		if filepath.Base(path) == "cpu.weight" {
			v.most = 10000
		}
		victims = append(victims, v)
	}
	if len(victims) == 0 {
		return errors.New("there is no file to overwrite")
	}
	random := rand.New(rand.NewPCG(seed, 0))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, end := 0, time.Now().Add(length); time.Now().Before(end); i++ {
		nap(20*time.Millisecond + upTo(random, 40*time.Millisecond))
		n := i % len(victims)
		took, late, err := victims[n].disturb(random)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%d %.1f %.1f\n", n, took, late); err != nil {
			return fmt.Errorf("printing a repair: %w", err)
		}
	}
	return nil
}

func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// disturb overwrites the file once and returns the microseconds until it was right again, and the longest time between two
// looks at it.
func (v *victim) disturb(random *rand.Rand) (took, late float64, err error) {
	value := 2 + random.Int64N(v.most-1)
	text := strconv.AppendInt(nil, value, 10)
	if bytes.Equal(text, v.want) {
		text = []byte("2")
	}
	start := time.Now()
	looked := start
	if _, err := unix.Pwrite(v.fd, text, 0); err != nil {
		return 0, 0, fmt.Errorf("overwriting a weight: %w", err)
	}
	var buf [32]byte
	for {
		n, err := unix.Pread(v.fd, buf[:], 0)
		if err != nil {
			return 0, 0, fmt.Errorf("reading a weight: %w", err)
		}
		now := time.Now()
		late = max(late, micros(now.Sub(looked)))
		looked = now
		if bytes.Equal(bytes.TrimSpace(buf[:n]), v.want) {
			return micros(now.Sub(start)), late, nil
		}
		if now.Sub(start) > lostAfter {
			// Put it right, so that the next disturbance of this file starts from where it should.
			_, err := unix.Pwrite(v.fd, v.want, 0)
			return math.NaN(), late, err
		}
		nap(pollEvery)
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// nap sleeps without the Go scheduler, which would add its own latency.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal only makes it shorter
}
