package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/sandbox"
)

const (
	piece      = 64 << 10               // bytes of a request
	think      = 4 * time.Millisecond   // from an answer to the next request
	printEvery = 100 * time.Millisecond // that the server prints its counts
	chunk      = 1 << 20                // bytes that batch reads at once
	pace       = 16                     // times a second
	grow       = chunk * 5 / 16         // bytes that batch takes more each time
)

const (
	serveHelper = "serve-file"
	hogHelper   = "hog"
)

// reading is the input of both helpers: a file and how much of it to read.
type reading struct {
	File  string
	Bytes int64
}

// Helpers returns the helpers of the experiment.
func Helpers() []sandbox.Helper {
	return []sandbox.Helper{
		{Name: serveHelper, Run: func(in sandbox.HelperInput) error {
			var r reading
			if err := in.Decode(&r); err != nil {
				return err
			}
			return serve(r, os.Stdout)
		}},
		{Name: hogHelper, Run: func(in sandbox.HelperInput) error {
			var r reading
			if err := in.Decode(&r); err != nil {
				return err
			}
			return hog(r, batchAtOnce, batchInTheEnd, os.Stdout)
		}},
	}
}

// serve is a server and its client in one: it reads a random piece of a file, thinks for a moment, and so on. It prints
// how many pieces it read, and how many of them were not entirely in memory. First it reads the whole file twice, so
// that the kernel counts it as active.
//
// It reads and sleeps without the Go scheduler, which in an emulated machine costs more than both.
func serve(r reading, out io.Writer) error {
	f, err := os.Open(r.File)
	if err != nil {
		return fmt.Errorf("opening the server's file: %w", err)
	}
	defer f.Close()
	fd, buf, pieces := int(f.Fd()), make([]byte, piece), r.Bytes/piece
	if err := unix.Fadvise(fd, 0, r.Bytes, unix.FADV_RANDOM); err != nil {
		return fmt.Errorf("switching off readahead of %s: %w", r.File, err)
	}
	for i := range 2 * pieces {
		if err := readAt(fd, buf, i%pieces*piece); err != nil {
			return err
		}
	}
	random := rand.New(rand.NewPCG(1, 0))
	last, waited := time.Now(), 0
	for n := int64(1); ; n++ {
		at := random.Int64N(pieces) * piece
		if got, err := unix.Preadv2(fd, [][]byte{buf}, at, unix.RWF_NOWAIT); err != nil || got < piece {
			if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("reading the part of %s that is in memory: %w", r.File, err)
			}
			waited++
			if err := readAt(fd, buf, at); err != nil {
				return err
			}
		}
		if now := time.Now(); now.Sub(last) >= printEvery {
			last = now
			if _, err := fmt.Fprintf(out, "answered=%d\nwaited=%d\n", n, waited); err != nil {
				return err
			}
		}
		load.Nap(think)
	}
}

// hog takes memory, a first part at once, then reads a file from its beginning to its end and again, at a steady pace,
// and takes more memory meanwhile. It prints how many KiB it has read and taken.
func hog(r reading, first, most int64, out io.Writer) error {
	f, err := os.Open(r.File)
	if err != nil {
		return fmt.Errorf("opening the file of batch: %w", err)
	}
	defer f.Close()
	memory, err := unix.Mmap(-1, 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("mapping memory: %w", err)
	}
	// Above its memory.high a process gets a page every two seconds at worst. In a node this small a huge page is a
	// hundredth of it. EINVAL: the kernel has no huge pages.
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("switching off huge pages: %w", err)
	}
	buf, page := make([]byte, chunk), int64(os.Getpagesize())
	next, taken := time.Now(), int64(0)
	for n := int64(0); ; n++ {
		for end := min(max(first, taken+grow), most); taken < end; taken += page {
			memory[taken] = 1
		}
		if _, err := fmt.Fprintf(out, "done=%d\n", (n*chunk+taken)>>10); err != nil {
			return err
		}
		if err := readAt(int(f.Fd()), buf, n%(r.Bytes/chunk)*chunk); err != nil {
			return err
		}
		next = next.Add(time.Second / pace)
		if now := time.Now(); now.Before(next) {
			load.Nap(next.Sub(now))
		} else {
			next = now
		}
	}
}

// readAt fills a buffer from a place in a file.
func readAt(fd int, buf []byte, at int64) error {
	for {
		n, err := unix.Pread(fd, buf, at)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("reading a file: %w", err)
		case n < len(buf):
			return fmt.Errorf("reading a file: it ends at %d", at+int64(n))
		default:
			return nil
		}
	}
}

// makeFile makes a file that is on its disk when this returns. It has no name any more, so it disappears with this
// process, however that ends.
func makeFile(dir string, size int64) (_ *os.File, err error) {
	f, err := os.CreateTemp(dir, "waterline-memory-")
	if err != nil {
		return nil, fmt.Errorf("making a file to read: %w", err)
	}
	err = os.Remove(f.Name())
	for text := bytes.Repeat([]byte("waterline lab memory            "), chunk/32); err == nil && size > 0; size -= chunk {
		_, err = f.Write(text[:min(size, chunk)])
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(fmt.Errorf("making a file to read: %w", err), f.Close())
	}
	return f, nil
}

// dropCache makes the kernel drop a file from the page cache, so that its pages are charged to the next process that
// reads it.
func dropCache(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("opening a file to read: %w", err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("dropping %s from the page cache: %w", file, err)
	}
	return nil
}
