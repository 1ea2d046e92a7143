package host

import (
	"bytes"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// Bounds of a search for processes. On 6.18 in a virtual machine, an entry of /proc takes 1 µs, and a look at the
// cgroup of a process 10 µs.
const (
	entersWithin  = 60   // seconds for which a process outside of pods is asked again for its pod
	entriesOfStep = 1024 // entries of /proc in one step
	looksOfStep   = 256  // cgroups of processes in one step
	// Processes that are remembered. Beyond that, only the first few of a pod are; the others are looked at again by each
	// search, which then takes more steps.
	mostKnown    = 128 << 10
	fewProcesses = 64
)

// processes finds the processes of pods in procfs, by the cgroup file of each process. The groups' own lists show only
// processes of the reader's PID namespace, and a container has its own.
//
// A search goes in steps of a bounded size, in the order of /proc, and leaves out nobody. So however many processes a
// pod begins, a step takes as long as ever, and the processes of other pods are found some steps later.
type processes struct {
	procReader
	layout  cgroup.Layout
	most    int             // of known processes
	dir     numbers         // /proc, open while a search is under way
	number  uint16          // of the last search
	known   map[int]process // by PID; nil: nothing was found yet
	pods    []podProcesses  // by number; 0 is no pod
	numbers map[string]int  // of pods, by UID
	left    bool            // a process is in another pod than a list says
}

// process is a process, in a pod or not. There may be very many, so it is small.
type process struct {
	inode     uint32 // of its directory in procfs; another inode means another process with the same PID
	firstSeen uint32 // time of the first search that found it, in seconds since boot
	pod       uint16 // number of its pod; 0: it is in no pod
	search    uint16 // number of the last search that found it
}

// podProcesses are the known processes of a pod.
type podProcesses struct {
	uid  string // "": the number is free
	pids []int32
	grew time.Duration // when the last one was found
}

// forget drops all processes, and ends the search.
func (f *processes) forget() {
	f.dir.close()
	f.known, f.pods, f.numbers, f.left = nil, nil, nil, false
}

// of returns the known processes of a pod, and when the last one was found.
func (f *processes) of(uid string) ([]int32, time.Duration) {
	if n := f.numbers[uid]; n != 0 {
		return f.pods[n].pids, f.pods[n].grew
	}
	return nil, 0
}

// search goes on with the search that is under way, or begins one, for so many steps. It reports whether the search is
// at its end. The time now is since boot.
func (f *processes) search(now time.Duration, steps int) (ended bool, err error) {
	if f.known == nil {
		f.known, f.numbers, f.pods = map[int]process{}, map[string]int{}, make([]podProcesses, 1)
	}
	if !f.dir.isOpen {
		if err := f.dir.open(f.path(0, ""), 0); err != nil {
			return true, err
		}
		f.number++
	}
	ended, err = f.dir.walk(steps*entriesOfStep, steps*looksOfStep, func(pid int, inode uint32) bool {
		return f.note(now, pid, inode)
	})
	if ended && err == nil {
		f.removeEnded()
	}
	return ended, err
}

// note records that a process was found. It reports whether the process had to be looked at.
func (f *processes) note(now time.Duration, pid int, inode uint32) (looked bool) {
	seconds := uint32(now / time.Second)
	p, known := f.known[pid]
	before := p.pod
	if !known || p.inode != inode {
		p = process{inode: inode, firstSeen: seconds}
	}
	if p.search = f.number; p.pod == 0 && seconds-p.firstSeen < entersWithin { // it enters its pod's group after it starts
		looked = true
		if uid := f.podOf(pid); uid != "" {
			p.pod = f.numberOf(uid)
		}
	}
	pod := &f.pods[p.pod]
	if !known && len(f.known) >= f.most && (p.pod == 0 || len(pod.pids) >= fewProcesses) {
		return looked
	}
	f.known[pid] = p
	if p.pod != before {
		f.left = f.left || before != 0
		if p.pod != 0 {
			pod.pids, pod.grew = append(pod.pids, int32(pid)), now
		}
	}
	return looked
}

// numberOf returns the number of a pod. A node has far fewer pods than there are numbers; beyond them, pods are not
// seen.
func (f *processes) numberOf(uid string) uint16 {
	n := f.numbers[uid]
	if n == 0 {
		const most = 1<<16 - 1
		n = 1 + slices.IndexFunc(f.pods[1:], func(p podProcesses) bool { return p.uid == "" })
		if n == 0 {
			if n = len(f.pods); n > most {
				return 0
			}
			f.pods = append(f.pods, podProcesses{})
		}
		f.pods[n], f.numbers[uid] = podProcesses{uid: uid}, n
	}
	return uint16(n)
}

// removeEnded forgets the processes that the last search did not find.
func (f *processes) removeEnded() {
	for pid, p := range f.known {
		if p.search != f.number {
			f.left = f.left || p.pod != 0
			delete(f.known, pid)
		}
	}
	for n := range f.pods {
		p := &f.pods[n]
		if f.left {
			p.pids = slices.DeleteFunc(p.pids, func(pid int32) bool {
				q, known := f.known[int(pid)]
				return !known || int(q.pod) != n
			})
			if cap(p.pids) > 4*len(p.pids)+fewProcesses {
				p.pids = slices.Clone(p.pids) // many have ended
			}
		}
		if n != 0 && p.uid != "" && len(p.pids) == 0 {
			delete(f.numbers, p.uid)
			*p = podProcesses{}
		}
	}
	f.left = false
}

// podOf returns the UID of the pod of a process. It returns "" for a process that is in no pod or has ended.
func (f *processes) podOf(pid int) string {
	for part := range bytes.FieldsFuncSeq(f.read(pid, "/cgroup"), func(r rune) bool { return r == '/' || r == '\n' }) {
		if uid, ok := f.layout.ParsePod(string(part)); ok {
			return uid
		}
	}
	return ""
}
