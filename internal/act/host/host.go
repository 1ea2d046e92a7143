// Package host brings the cgroup files of this node to a plan, and back again.
//
// It decides nothing. It writes a file only where the kernel holds another value than the plan, in the order that
// cgroup.Steps gives, and only after what stood there before is on record. What came of it is returned, so that the
// next round can take it into account.
package host

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Host owns the cgroup files that plans name. It keeps them open, so that checking them allocates nothing. It is not
// safe for concurrent use.
type Host struct {
	version cgroup.Version
	// of the hierarchies that the knobs stand in; without those that this node has none for
	roots map[model.Knob]*os.Root
	page  int64 // size in bytes
	undo  *Undo
	files []*file // what the last plan names, ordered
	spare []*file // for the next
	index map[model.File]*file
	steps []cgroup.Step
	buf   [4096]byte
	stats Stats
}

// file is one cgroup file that the plan names.
type file struct {
	setting model.Setting
	want    cgroup.Raw
	f       *os.File // nil: not open
	fd      int      // of f
	inode   uint64
	writes  bool       // f is open for writing
	found   cgroup.Raw // when it was last read
	exists  bool       // it was there when last looked at
	stale   bool       // to be read in this round

	effective *os.File   // of a list of CPUs: which of them the group may really run on; nil: not open
	allowed   cgroup.Raw // what it read
	told      cgroup.Raw // what confined returned when Host.Confined was asked last
}

// Stats counts what was done since the start.
type Stats struct {
	Writes   map[model.Knob]uint64
	Repairs  map[model.Knob]uint64 // writes that answered another writer
	Rejected map[Rejection]uint64
}

// Rejection is a knob and the kernel's error, such as "EINVAL".
type Rejection struct {
	Knob  model.Knob
	Errno string
}

// New returns a Host for the hierarchies that the knobs stand in. Of a knob mounted tells where its hierarchy is
// mounted, "" if this node has no such controller.
func New(v cgroup.Version, mounted func(model.Knob) string, undo *Undo) (*Host, error) {
	h := &Host{
		version: v, roots: map[model.Knob]*os.Root{}, page: int64(os.Getpagesize()), undo: undo,
		index: map[model.File]*file{},
		stats: Stats{Writes: map[model.Knob]uint64{}, Repairs: map[model.Knob]uint64{}, Rejected: map[Rejection]uint64{}},
	}
	for _, k := range model.Knobs() {
		path := mounted(k)
		if path == "" {
			continue
		}
		root, err := os.OpenRoot(path)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the cgroup hierarchy of %s: %w", k, err), h.Close())
		}
		h.roots[k] = root
	}
	return h, nil
}

// hierarchy returns the hierarchy that a knob stands in.
func (h *Host) hierarchy(k model.Knob) (*os.Root, error) {
	if root := h.roots[k]; root != nil {
		return root, nil
	}
	return nil, fmt.Errorf("this node has no controller with %s: %w", k, unix.ENOENT)
}

// Close closes every file and leaves their values as they are.
func (h *Host) Close() error {
	for _, f := range h.files {
		f.close()
	}
	var err error
	for _, root := range h.roots {
		err = errors.Join(err, root.Close())
	}
	return err
}

// Stats returns the counters. The maps are the live ones: read them where Host is used.
func (h *Host) Stats() Stats { return h.stats }

// Check reads one file of the last plan and reports whether it holds something else than that plan says, or is there
// when it was not before, or the other way round. A file that is held or that no plan names is none of our business.
func (h *Host) Check(name model.File) bool {
	f := h.index[name]
	if f == nil || f.setting.Deferred != nil {
		return false
	}
	return h.deviates(f)
}

// CheckDir is [Host.Check] for the files in a directory and in those below it.
func (h *Host) CheckDir(dir string) bool {
	any := false
	for _, f := range h.files {
		if f.setting.Dir == dir || strings.HasPrefix(f.setting.Dir, dir+"/") {
			any = h.Check(f.setting.File) || any
		}
	}
	return any
}

// CheckAll is [Host.Check] for every file of the last plan. It also reports true while the undo record on disk is
// behind. It allocates nothing while nothing deviates.
func (h *Host) CheckAll() bool {
	any := h.undo.Unsaved()
	for _, f := range h.files {
		if f.setting.Deferred == nil && h.deviates(f) {
			any = true
		}
	}
	return any
}

func (h *Host) deviates(f *file) bool {
	existed := f.exists
	if err := h.read(f); err != nil || f.exists != existed || f.exists && (f.found != f.want || f.confined() != f.told) {
		f.stale = true
	}
	return f.stale
}

// Apply brings the files to a plan. It reads those that the plan says something new about and those that were found to
// deviate, and writes where that is needed. A memory limit below what its group uses is not written. Incidents are what
// the next round should know; errors are what stands in the way of the plan and is neither the kernel's refusal nor a
// group that is gone.
func (h *Host) Apply(plan *model.Plan) ([]model.Incident, error) {
	h.adopt(plan.Settings)
	var incidents []model.Incident
	var errs []error
	h.steps = h.steps[:0]
	for _, f := range h.files {
		if !f.stale {
			continue
		}
		f.stale = false
		if err := h.read(f); err != nil {
			errs = append(errs, err)
			continue
		}
		record, owned := h.undo.Get(f.setting.File, f.inode)
		masked := owned && h.masked(f)
		found := f.found
		if masked {
			found = record.Ours
		}
		switch {
		case f.setting.Release && (!f.exists || !owned || f.found == f.want && !masked):
			h.undo.Forget(f.setting.File)
		case !f.exists || f.setting.Deferred != nil:
		case f.found == f.want && !masked:
			// The container runtime gave a new container its CPUs, as we told it, and the kernel the identity of its pod. They
			// are to be given back like any other.
			if (f.setting.Knob == model.Cpuset || f.setting.Knob == model.Identity) && !owned {
				h.undo.Take(f.setting.File, f.inode, h.before(f), f.want)
			}
		default:
			step := cgroup.Step{File: f.setting.File, From: found, To: f.want}
			use, err := h.exceeded(step)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if use > 0 && step.Knob == model.MemoryHigh {
				f.stale = true // the next round knows what the group uses, and wants no less
				continue
			}
			if use > 0 {
				incidents = append(incidents, model.Incident{
					File: step.File, Kind: model.Exceeded, Value: f.setting.Value, Use: use,
				})
				continue
			}
			if owned && found != record.Ours && (record.Before == nil || found != *record.Before) {
				incidents = append(incidents, model.Incident{
					File: step.File, Kind: model.Overwritten, Value: cgroup.FromRaw(h.version, step.Knob, found),
				})
			}
			h.steps = append(h.steps, step)
		}
	}
	cgroup.Steps(h.steps)
	refused, err := h.take()
	errs = append(errs, err)
	h.count(incidents, refused)
	incidents = append(incidents, refused...)
	slices.SortFunc(incidents, func(a, b model.Incident) int { return a.File.Compare(b.File) })
	return incidents, errors.Join(errs...)
}

// masked reports whether a weight does not show, because its group is idle and is just to stop being so. What is read
// instead is nobody's value, and the kernel forgets the weight in that moment: it must be written whatever is read.
func (h *Host) masked(f *file) bool {
	if f.setting.Knob != model.Shares {
		return false
	}
	idle := h.index[model.File{Dir: f.setting.Dir, Knob: model.Idle}]
	return idle != nil && idle.want.Number == 0 && h.read(idle) == nil && idle.exists && idle.found.Number != 0
}

// before returns what a file would hold without us that held what we want when it was first read: a new group starts
// with the identity of the one above, so if that is from us, with what it had before.
func (h *Host) before(f *file) cgroup.Raw {
	above := h.index[model.File{Dir: path.Dir(f.setting.Dir), Knob: f.setting.Knob}]
	if f.setting.Knob != model.Identity || above == nil {
		return f.found
	}
	if record, owned := h.undo.Get(above.setting.File, above.inode); owned {
		return record.Theirs
	}
	return f.found
}

// adopt makes the files of a plan the files that we watch over. What the plan says anew is marked to be read. Both are
// ordered, so they are gone through side by side.
func (h *Host) adopt(settings []model.Setting) {
	old := h.files
	h.files, h.spare = h.spare[:0], old
	for _, s := range settings {
		for len(old) > 0 && old[0].setting.File.Compare(s.File) < 0 {
			h.drop(old[0])
			old = old[1:]
		}
		var f *file
		if len(old) > 0 && old[0].setting.File == s.File {
			f, old = old[0], old[1:]
		} else {
			f = &file{}
			h.index[s.File] = f
		}
		want := h.raw(s.Knob, s.Value)
		if !f.exists || f.want != want || f.setting.Release != s.Release ||
			(f.setting.Deferred == nil) != (s.Deferred == nil) {
			f.stale = true
		}
		f.setting, f.want = s, want
		h.files = append(h.files, f)
	}
	for _, f := range old {
		h.drop(f)
	}
}

// drop forgets a file that the plan no longer names.
func (h *Host) drop(f *file) {
	f.close()
	delete(h.index, f.setting.File)
}

// take puts the steps on record, takes them in their order, and returns what the kernel refused.
func (h *Host) take() ([]model.Incident, error) {
	for _, step := range h.steps {
		if f := h.index[step.File]; !f.setting.Release {
			h.undo.Take(step.File, f.inode, step.From, step.To)
		}
	}
	var refused []model.Incident
	errs := []error{h.undo.Save()}
	for _, step := range h.steps {
		f := h.index[step.File]
		if !f.setting.Release && !h.undo.Safe(step.File, f.inode) {
			f.stale = true // it could not be undone; perhaps the record can be written next time
			continue
		}
		err := h.writeFile(f, step.To)
		var errno unix.Errno
		switch {
		case errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES):
			f.stale = true // that is about the mount, not about the value: it may be writable next time
			errs = append(errs, err)
		case err == nil:
			h.undo.Wrote(step.File)
			h.stats.Writes[step.Knob]++
		case isGone(err):
			f.close()
			f.exists = false
		case errors.As(err, &errno):
			refused = append(refused, model.Incident{
				File: step.File, Kind: model.Rejected, Value: f.setting.Value, Errno: unix.ErrnoName(errno),
			})
		default:
			errs = append(errs, err)
		}
		if f.setting.Release && (err == nil || isGone(err)) {
			h.undo.Forget(step.File)
		}
	}
	errs = append(errs, h.undo.Save())
	return refused, errors.Join(errs...)
}

// count adds what one round met with to the counters.
func (h *Host) count(overwritten, refused []model.Incident) {
	for _, i := range overwritten {
		if i.Kind == model.Overwritten {
			h.stats.Repairs[i.Knob]++
		}
	}
	for _, i := range refused {
		h.stats.Rejected[Rejection{i.Knob, i.Errno}]++
	}
}

// read brings what is known of a file up to date, opening it if need be. A group that is gone is not an error.
func (h *Host) read(f *file) error {
	for range 2 {
		if f.f == nil {
			if err := h.open(f); err != nil {
				f.exists = false
				if isGone(err) {
					return nil
				}
				return err
			}
		}
		// pread, because File.ReadAt asks twice: the second time to learn that this was the end.
		n, err := unix.Pread(f.fd, h.buf[:], 0)
		if isGone(err) { // the group was removed; there may be a new one of the same name
			f.close()
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s in %s: %w", f.setting.Knob, f.setting.Dir, err)
		}
		raw, err := cgroup.Parse(h.version, f.setting.Knob, h.buf[:n], f.found)
		if err != nil {
			return fmt.Errorf("%s: %w", f.setting.Dir, err)
		}
		f.found, f.exists = raw, true
		return h.readEffective(f)
	}
	f.exists = false
	return nil
}

// readEffective reads which CPUs of its list a group may really run on: ancestors may allow less. A group that is gone
// meanwhile is found out when its list is read next.
func (h *Host) readEffective(f *file) error {
	if f.effective == nil {
		return nil
	}
	n, err := unix.Pread(int(f.effective.Fd()), h.buf[:], 0)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s in %s: %w", cgroup.EffectiveFile(h.version), f.setting.Dir, err)
	}
	f.allowed, err = cgroup.Parse(h.version, f.setting.Knob, h.buf[:n], f.allowed)
	if err != nil {
		return fmt.Errorf("%s: %w", f.setting.Dir, err)
	}
	return nil
}

func (h *Host) open(f *file) error {
	root, err := h.hierarchy(f.setting.Knob)
	if err != nil {
		return err
	}
	name := path.Join(f.setting.Dir, cgroup.FileName(h.version, f.setting.Knob))
	opened, err := root.OpenFile(name, os.O_RDWR, 0)
	f.writes = err == nil
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		opened, err = root.Open(name) // what cannot be written can still be explained
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", name, err)
	}
	dir, err := root.Stat(f.setting.Dir)
	if err != nil {
		_ = opened.Close()
		return fmt.Errorf("looking at %s: %w", f.setting.Dir, err)
	}
	f.f, f.fd, f.inode = opened, int(opened.Fd()), inodeOf(dir)
	if f.setting.Knob == model.Cpuset {
		// Absent before 3.17 on v1; then it is taken for granted.
		f.effective, _ = root.Open(path.Join(f.setting.Dir, cgroup.EffectiveFile(h.version)))
	}
	return nil
}

// reopen opens a file for writing that could only be read when it was opened: the mount was read-only then. A file of
// the same name in another group than the one that is on record is not written.
func (h *Host) reopen(f *file) error {
	inode := f.inode
	f.close()
	if err := h.open(f); err != nil {
		return err
	}
	switch {
	case f.inode != inode:
		return fmt.Errorf("opening %s in %s again: %w", f.setting.Knob, f.setting.Dir, unix.ENODEV)
	case !f.writes:
		return fmt.Errorf("opening %s in %s for writing: %w", f.setting.Knob, f.setting.Dir, unix.EROFS)
	}
	return nil
}

func (h *Host) writeFile(f *file, raw cgroup.Raw) error {
	if !f.writes {
		if err := h.reopen(f); err != nil {
			return err
		}
	}
	text := cgroup.Append(h.buf[:0], h.version, f.setting.Knob, raw)
	// pwrite, because v2 files can be polled: File.WriteAt would wait for ever where the kernel says EAGAIN.
	if _, err := unix.Pwrite(f.fd, text, 0); err != nil {
		return fmt.Errorf("writing %q to %s in %s: %w", text, f.setting.Knob, f.setting.Dir, err)
	}
	f.found = raw
	return nil
}

func (f *file) close() {
	if f.f != nil {
		_ = f.f.Close()
		f.f = nil
	}
	if f.effective != nil {
		_ = f.effective.Close()
		f.effective = nil
	}
}

// isGone reports whether an error only says that the group was removed: its path is not there (ENOENT), or a file of it
// that is still open has lost its group (ENODEV).
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

func inodeOf(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
