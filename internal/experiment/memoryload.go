package experiment

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	piece = 64 << 10               // bytes that a request reads
	think = 4 * time.Millisecond   // from an answer to the next request
	say   = 100 * time.Millisecond // between two times that load says how much it has done
	chunk = 1 << 20                // bytes that batch reads at once
	pace  = 16                     // times a second
	grow  = chunk * 5 / 16         // bytes that batch takes more each time
)

// answerFrom serves and asks at once: it reads a random piece of a file, thinks for a moment, and so on, and prints how many it read, and of
// how many not all was in memory. First it reads all of it twice, so that the kernel knows that it is needed.
//
// It reads and sleeps without the Go scheduler, which in an emulated machine costs more than both.
func answerFrom(path string, size int64, seed uint64, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening what is served: %w", err)
	}
	defer f.Close()
	fd, buf, pieces := int(f.Fd()), make([]byte, piece), size/piece
	if err := unix.Fadvise(fd, 0, size, unix.FADV_RANDOM); err != nil {
		return fmt.Errorf("asking for no more of %s than is read: %w", path, err)
	}
	for i := range 2 * pieces {
		if err := readAt(fd, buf, i%pieces*piece); err != nil {
			return err
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	last, waited := time.Now(), 0
	for n := int64(1); ; n++ {
		at := random.Int64N(pieces) * piece
		if got, err := unix.Preadv2(fd, [][]byte{buf}, at, unix.RWF_NOWAIT); err != nil || got < piece {
			if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("reading what is in memory of %s: %w", path, err)
			}
			waited++
			if err := readAt(fd, buf, at); err != nil {
				return err
			}
		}
		if now := time.Now(); now.Sub(last) >= say {
			last = now
			if _, err := fmt.Fprintf(out, "answered=%d\nwaited=%d\n", n, waited); err != nil {
				return err
			}
		}
		nap(think)
	}
}

// hog takes memory, all but the last of it at once, then reads a file from its beginning to its end and again, at a steady pace, and takes
// more memory meanwhile. It prints how many KiB it has read and taken.
func hog(path string, size, first, most int64, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening what batch reads: %w", err)
	}
	defer f.Close()
	memory, err := unix.Mmap(-1, 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("asking for memory: %w", err)
	}
	// Above its memory.high a process gets a page every two seconds at worst. In a node this small a huge page is a hundredth of it.
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the kernel has none
		return fmt.Errorf("asking for small pages: %w", err)
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
		if err := readAt(int(f.Fd()), buf, n%(size/chunk)*chunk); err != nil {
			return err
		}
		next = next.Add(time.Second / pace)
		if now := time.Now(); now.Before(next) {
			nap(next.Sub(now))
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

// strain is how the memory of a group and those below it fared since it was made.
type strain struct {
	refaults int64 // pages of files that were read again after they had been taken
	low      int64 // times that memory was taken although it was protected
	high     int64 // times that somebody was slowed down
	full     int64 // times that the group was at its limit
	killed   int64 // processes
}

// strain reads how the memory of a cgroup fared.
func (b *sandbox) strain(dir string) (strain, error) {
	events, err1 := os.ReadFile(filepath.Join(b.mount.Path, dir, "memory.events"))
	stat, err2 := os.ReadFile(filepath.Join(b.mount.Path, dir, "memory.stat"))
	if err := errors.Join(err1, err2); err != nil {
		return strain{}, fmt.Errorf("reading how memory fares: %w", err)
	}
	return parseStrain(string(events), string(stat))
}

// parseStrain reads memory.events and memory.stat.
func parseStrain(events, stat string) (s strain, err error) {
	for _, f := range []struct {
		text, key string
		to        *int64
	}{
		{events, "low", &s.low}, {events, "high", &s.high}, {events, "max", &s.full}, {events, "oom_kill", &s.killed},
		{stat, "workingset_refault_file", &s.refaults},
	} {
		_, rest, found := strings.Cut("\n"+f.text, "\n"+f.key+" ")
		number, _, _ := strings.Cut(rest, "\n")
		if *f.to, err = strconv.ParseInt(number, 10, 64); err != nil || !found {
			return strain{}, fmt.Errorf("reading how memory fares: there is no count of %s in %q", f.key, f.text)
		}
	}
	return s, nil
}

func (s strain) since(before strain) strain {
	return strain{s.refaults - before.refaults, s.low - before.low, s.high - before.high, s.full - before.full, s.killed - before.killed}
}

// setMemory writes how much memory a cgroup may have.
func (b *sandbox) setMemory(dir string, bytes int64) error {
	if err := writeFile(filepath.Join(b.mount.Path, dir, "memory.max"), strconv.FormatInt(bytes, 10)); err != nil {
		return fmt.Errorf("bounding the memory of a cgroup: %w", err)
	}
	return nil
}

// bytes reads an amount of memory of a cgroup.
func (b *sandbox) bytes(dir, name string) (int64, error) {
	content, err := os.ReadFile(filepath.Join(b.mount.Path, dir, name))
	if err != nil {
		return 0, fmt.Errorf("reading an amount of memory: %w", err)
	}
	return parseBytes(content)
}

// parseBytes reads an amount of memory, [model.Unlimited] where there is no bound.
func parseBytes(content []byte) (int64, error) {
	text := strings.TrimSpace(string(content))
	if text == "max" {
		return model.Unlimited, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading an amount of memory: %w", err)
	}
	return n, nil
}

// reclaimed sums up what batch pods gave back when the agent had them asked, in bytes, by the journal in its run directory.
func reclaimed(dir string) (sum int64, err error) {
	err = eachRound(dir, func(r *journal.Round) {
		if r.Node.Reclaimed != nil {
			sum += r.Node.Reclaimed.Freed
		}
	})
	return sum, err
}
