package host

import (
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Status returns the files of the last plan whose directory satisfies a condition.
func (h *Host) Status(match func(dir string) bool) []model.FileStatus {
	var all []model.FileStatus
	for _, f := range h.files {
		if !match(f.setting.Dir) {
			continue
		}
		_ = h.read(f) // an unreadable file is shown as absent
		s := model.FileStatus{Setting: f.setting, Exists: f.exists, Is: cgroup.FromRaw(h.version, f.setting.Knob, f.found)}
		if record, owned := h.undo.Get(f.setting.File, f.inode); owned {
			s.Owned, s.Was = true, cgroup.FromRaw(h.version, f.setting.Knob, record.Theirs)
		}
		all = append(all, s)
	}
	return all
}

// Owned returns the files on record, ordered.
func (h *Host) Owned() []model.Owned { return h.undo.Owned(h.version) }

// Confined returns the groups that may run on other CPUs than their lists say, ordered, as of the last read.
func (h *Host) Confined() []model.Confined {
	var confined []model.Confined
	for _, f := range h.files {
		if f.reported = f.confined(); f.reported.List != "" {
			confined = append(confined, model.Confined{File: f.setting.File, To: model.Value(f.reported)})
		}
	}
	return confined
}

// confined returns the CPUs of a group if they differ from its planned list, else the zero value.
func (f *file) confined() cgroup.Raw {
	if f.effective == nil || !f.exists || f.setting.Deferred != nil || f.setting.Release || f.found != f.want ||
		f.allowed == f.found {
		return cgroup.Raw{}
	}
	return f.allowed
}
