// Package host writes the cgroup files of this node as a plan says, and restores them.
//
// It decides nothing. It writes a file only if the kernel holds another value than the plan, in the order of
// cgroup.Steps, and only after the previous value is on record. It returns what happened as incidents for the next
// round.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Host owns the cgroup files of plans. It keeps them open, so checking them allocates nothing. It is not safe for
// concurrent use.
type Host struct {
	version cgroup.Version
	// of the hierarchies that the knobs stand in; without those that this node has none for
	roots map[model.Knob]*os.Root
	page  int64 // size in bytes
	undo  *Undo
	files []*file // of the last plan, ordered
	spare []*file // for the next
	index map[model.File]*file
	steps []cgroup.Step
	buf   [4096]byte
	stats Stats
}

// Stats counts the work since the start.
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

// New returns a Host. mounted returns the mount point of a knob's hierarchy, "" if this node has no such controller.
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

// hierarchy returns the hierarchy of a knob.
func (h *Host) hierarchy(k model.Knob) (*os.Root, error) {
	if root := h.roots[k]; root != nil {
		return root, nil
	}
	return nil, fmt.Errorf("this node has no controller with %s: %w", k, unix.ENOENT)
}

// Foreign returns the files that a newer version of Waterline wrote and only such a version can restore, a directory
// and a name each.
func (h *Host) Foreign() []string {
	// In which hierarchy such a file stands is not known. A pod has the same path in all of them.
	return h.undo.Foreign(func(dir string) bool {
		for _, k := range []model.Knob{model.Shares, model.Cpuset, model.MemoryMax} { // each may be in one of its own
			if root := h.roots[k]; root == nil {
				continue
			} else if _, err := root.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				return false
			}
		}
		return true
	})
}

// Close closes every file. The values stay.
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

// Check reads one file of the last plan. It reports whether the file differs from the plan, or has appeared or
// disappeared. A deferred file, or one that is not in the plan, does not count.
func (h *Host) Check(name model.File) bool {
	f := h.index[name]
	return f != nil && h.deviates(f)
}

// CheckDir is [Host.Check] for the files in a directory and below it.
func (h *Host) CheckDir(dir string) bool {
	any := false
	for _, f := range h.files {
		if f.setting.Dir == dir || strings.HasPrefix(f.setting.Dir, dir+"/") {
			any = h.deviates(f) || any
		}
	}
	return any
}

// CheckAll is [Host.Check] for every file of the last plan. It also reports true while the undo record on disk is
// behind. Without a difference it allocates nothing.
func (h *Host) CheckAll() bool {
	any := h.undo.Unsaved()
	for _, f := range h.files {
		any = h.deviates(f) || any
	}
	return any
}

func (h *Host) deviates(f *file) bool {
	if f.setting.Deferred != nil {
		return false
	}
	existed := f.exists
	if err := h.read(f); err != nil || f.exists != existed ||
		f.exists && (f.found != f.want || f.confined() != f.reported) {
		f.stale = true
	}
	return f.stale
}

// Apply writes the files of a plan. It reads those with a new setting and those that were found to differ, and writes
// where that is needed. A memory limit below the usage of its group is not written. Incidents are the input of the next
// round. Errors are obstacles other than a refusal by the kernel or a removed group.
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
			// The container runtime gave a new container its CPUs through NRI, and the kernel gave it the identity of its
			// pod. They are restored like every other value.
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
				f.stale = true // the next round knows the usage, and limits to no less
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

// masked reports whether a weight is hidden, because its group is idle and is about to stop being idle. The value that
// is read has no writer, and the kernel resets the weight at that moment: it must be written whatever is read.
func (h *Host) masked(f *file) bool {
	if f.setting.Knob != model.Shares {
		return false
	}
	idle := h.index[model.File{Dir: f.setting.Dir, Knob: model.Idle}]
	return idle != nil && idle.want.Number == 0 && h.read(idle) == nil && idle.exists && idle.found.Number != 0
}

// before returns what a file would hold without Waterline, if it held the planned value when it was first read: a new
// group starts with the identity of its parent. If that is Waterline's, it is the parent's recorded value.
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

// adopt replaces the watched files by those of a plan, and marks files with a new setting for reading. Both lists are
// ordered, so one pass compares them.
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
		if !f.exists || f.setting.Value != s.Value || f.setting.Release != s.Release ||
			(f.setting.Deferred == nil) != (s.Deferred == nil) {
			f.stale = true
		}
		f.setting = s
		f.want = h.raw(f)
		h.files = append(h.files, f)
	}
	for _, f := range old {
		h.drop(f)
	}
}

// drop forgets a file that the plan no longer contains.
func (h *Host) drop(f *file) {
	f.close()
	delete(h.index, f.setting.File)
}

// take records the steps, carries them out in order, and returns the refusals of the kernel.
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
			f.stale = true // without a record it could not be undone
			continue
		}
		err := h.writeFile(f, step.To)
		var errno unix.Errno
		switch {
		case errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES):
			f.stale = true // because of the mount, not the value: it may be writable next time
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

// count adds the incidents of one round to the counters.
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
