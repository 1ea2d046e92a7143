package node

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	// inUsePause is the pause before a memory limit below its group's usage is tried again. A try costs one read.
	inUsePause = 10 * time.Second

	// The pauses of a file that refuses every write begin with minPause, and double up to maxPause. Pauses of that length
	// end on the hour, so that a kind of file that this kernel refuses in all groups costs two rounds an hour.
	minPause = time.Second
	maxPause = time.Hour
	// reportAfter is how long a refusal lasts before it is reported. On v1 a quota can be refused for an instant, while
	// another writer has changed the parent's quota and not yet the child's.
	reportAfter = 10 * time.Second
)

// Refusal is a value that the kernel refused, or that was not written because of memory in use, and the group at that
// time.
type Refusal struct {
	Value model.Value
	Errno string
	Inode uint64 // of the pod's cgroup
	Size  int    // number of directories in the pod's cgroup
	Times int    // writes refused in a row; 0: none was
	At    time.Time
	Since time.Time   // when the first of them was refused
	First model.Value // what it was to write
	InUse bool        `json:",omitempty"` // a memory limit that was below the usage of its group
	Use   int64       `json:",omitempty"` // this usage, in bytes; 0: not known
	Moved bool        `json:",omitempty"` // something near the file changed since
	Tried bool        `json:",omitempty"` // the last plan wrote the file: without another refusal, it was written
}

// refuse records that a write was refused.
func (f *FileState) refuse(n *model.Node, incident model.Incident, group model.PodGroup) {
	last := f.Refused
	f.Refused = Refusal{
		Value: incident.Value, Errno: incident.Errno, Inode: group.Inode, Size: len(group.Containers), At: n.Now,
		Times: 1, Since: n.Now, First: incident.Value,
	}
	r := &f.Refused
	if f.Knob == model.MemoryMax && (incident.Kind == model.Exceeded || incident.Errno == "EBUSY") {
		r.InUse, r.Use = true, incident.Use
		return
	}
	if last.Times > 0 && !last.InUse {
		r.Times, r.Since, r.First = last.Times+1, last.Since, last.First
	}
}

// retryAt returns when a refused setting is written again. The same value for the same group would be refused again,
// but a file that refused one value may accept another. A file that refused two writes in a row may refuse every write,
// so its pauses grow. A setting that restores a file does not wait for these pauses.
func (r *Refusal) retryAt(s *model.Setting, group model.PodGroup) time.Time {
	const doublings = 12 // minPause reaches maxPause
	same := !r.Moved && group.Inode == r.Inode && len(group.Containers) == r.Size && s.Value == r.Value
	switch {
	case r.InUse && same:
		return r.At.Add(inUsePause)
	case same || r.Times-2 >= doublings && !s.Release:
		return r.At.Truncate(maxPause).Add(2 * maxPause)
	case r.InUse || r.Times == 1 || s.Release:
		return r.At
	}
	return r.At.Add(minPause << (r.Times - 2))
}

// refuses defers a setting that was refused and must wait, and reports whether it did.
func (f *FileState) refuses(n *model.Node, plan *model.Plan, s *model.Setting, group model.PodGroup) bool {
	r := &f.Refused
	if r.Times == 0 {
		return false
	}
	at := r.retryAt(s, group)
	if !n.Now.Before(at) {
		return false
	}
	wake(plan, at)
	if !r.InUse {
		s.Deferred = &model.Reason{Code: model.RejectedByKernel, Key: f.Knob.String(), Text: r.Errno}
		return true
	}
	s.Deferred = &model.Reason{Code: model.MemoryInUse}
	if r.Use > 0 {
		s.Deferred.Operands = []model.Operand{{Name: "use", Value: r.Use, Unit: model.UnitBytes}}
	}
	notify(n, plan, f.Dir, model.Reason{
		Code: model.MemoryInUse, Key: f.Knob.String(), Text: s.Value.String(),
		Fix: "the limit counts when less is used; start the pod anew to have it now",
	})
	return true
}

// refused returns the one refusal of the node that is reported: that of the first file, with the first value that it
// refused. It is only one, and its text stays the same, because a kernel can refuse a kind of file in all groups.
func (s *State) refused(n *model.Node, plan *model.Plan) (model.Reason, bool) {
	for i := range s.Files {
		f, r := &s.Files[i], &s.Files[i].Refused
		if r.Times == 0 || r.InUse {
			continue
		}
		if stands := r.Since.Add(reportAfter); n.Now.Before(stands) {
			wake(plan, stands)
			continue
		}
		return model.Reason{
			Code: model.RejectedByKernel, Key: f.Dir + " " + f.Knob.String(), Text: r.First.String() + ": " + r.Errno,
			Fix: "waterline explain pod shows what else is not written; what the file is for has no effect there",
		}, true
	}
	return model.Reason{}, false
}
