package host

import (
	"bytes"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// entersWithin is how long a process outside of pods is asked again for its pod, in seconds.
const entersWithin = 60

// processes finds the processes of pods in procfs, by the cgroup file of each process. The groups' own lists show only
// processes of the reader's PID namespace, and a container has its own.
type processes struct {
	proc   string // mount point of the host's procfs
	layout cgroup.Layout
	known  map[int]*process // by PID; nil: nothing was found yet
	pods   map[string][]*process
	buf    [4 << 10]byte
}

// process is a process, in a pod or not.
type process struct {
	dir       string // in procfs
	taskDir   []byte // the directory of its tasks, and a null byte; nil: it was not listed yet
	inode     uint64 // of dir; another inode means another process with the same PID
	uid       string // of its pod; "": in no pod
	firstSeen int64  // time of the first search that found it, in seconds
	seen      int64  // time of the last search that found it, in seconds
}

// forget drops all processes.
func (f *processes) forget() { f.known, f.pods = nil, nil }

// find updates the set of known processes. The time now is in seconds since boot.
func (f *processes) find(now int64) error {
	if f.known == nil {
		f.known = map[int]*process{}
	}
	changed := f.pods == nil
	err := eachNumber(f.proc, func(_, pid int, inode uint64) {
		p := f.known[pid]
		if p == nil || p.inode != inode {
			changed = changed || p != nil && p.uid != ""
			dir := f.proc + "/" + strconv.Itoa(pid)
			p = &process{dir: dir, inode: inode, firstSeen: now}
			f.known[pid] = p
		}
		if p.seen = now; p.uid == "" && now-p.firstSeen < entersWithin { // a process enters its pod's group after it starts
			p.uid = f.podOf(p.dir)
			changed = changed || p.uid != ""
		}
	})
	if err != nil {
		return err
	}
	for pid, p := range f.known {
		if p.seen != now {
			changed = changed || p.uid != ""
			delete(f.known, pid)
		}
	}
	if !changed {
		return nil
	}
	f.pods = map[string][]*process{}
	for _, p := range f.known {
		if p.uid != "" {
			f.pods[p.uid] = append(f.pods[p.uid], p)
		}
	}
	return nil
}

// podOf returns the UID of the pod of a process, given its directory in procfs. It returns "" for a process
// that is in no pod or has ended.
func (f *processes) podOf(dir string) string {
	content, err := f.read(unix.AT_FDCWD, dir+"/cgroup")
	if err != nil {
		return ""
	}
	for part := range bytes.FieldsFuncSeq(content, func(r rune) bool { return r == '/' || r == '\n' }) {
		if uid, ok := f.layout.ParsePod(string(part)); ok {
			return uid
		}
	}
	return ""
}

// read reads a file whose content fits one read.
func (f *processes) read(dir int, path string) ([]byte, error) {
	fd, err := openat(dir, path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer closeFile(fd)
	n, err := pread(fd, f.buf[:])
	return f.buf[:max(n, 0)], err
}

// eachNumber calls f for each subdirectory whose name is a number. It passes the open parent directory to f.
func eachNumber(dir string, f func(fd, number int, inode uint64)) error {
	name, err := unix.BytePtrFromString(dir)
	if err != nil {
		return err
	}
	return eachNumberIn(name, f)
}

// eachTask calls f for each task of a process, with the open directory of the tasks. It fails if the process has ended.
func (p *process) eachTask(f func(fd, tid int, inode uint64)) error {
	if p.taskDir == nil {
		p.taskDir = append([]byte(p.dir), "/task\x00"...)
	}
	return eachNumberIn(&p.taskDir[0], f)
}

// eachNumberIn is [eachNumber] for a path that ends in a null byte.
func eachNumberIn(dir *byte, f func(fd, number int, inode uint64)) error {
	fd, err := openName(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	for buf := make([]byte, 4<<10); ; {
		n, err := getdents(fd, buf)
		if err != nil || n <= 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			var e dirent
			e, b = nextDirent(b)
			number, rest, ok := nextNumber(e.name)
			if ok && len(rest) == 0 && e.kind == unix.DT_DIR && number <= math.MaxInt32 {
				f(fd, int(number), e.inode)
			}
		}
	}
}
