package node

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/contention"
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/evict"
	"github.com/waterline-io/waterline/internal/decide/node/interference"
	"github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/decide/node/publish"
	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// The bounds on repairing a file that another writer overwrites. The kubelet and systemd rewrite a file at most once
// for each of their events, and are always answered at once. Only a writer in a loop exceeds these bounds.
const (
	fightWindow  = 10 * time.Second
	fightRepairs = 100 // in one window: ten a second
	fightAnswer  = time.Second
)

// crowdedFor is how long a memory limit is not tried again that was below its group's usage. A try costs one read.
const crowdedFor = 10 * time.Second

// State is what one round hands to the next. No round changes a state that it was given: what is not copied is never
// changed once it is in a state. All of it is written to the journal, so that any round can be replayed.
type State struct {
	Files []FileState   // files that were refused or overwritten, ordered by file
	CPUs  cpuset.State  // CPUs that pods have for their own
	Peaks predict.State // usage of the online pods in the past
	Slack slack.State   // offers

	Contention   contention.State    // what online pods lack, and the CPU that batch may use
	Quota        quota.State         // bursts of online pods
	Memory       memory.State        // memory limits of batch pods, and reclaim
	Interference *interference.State `json:",omitempty"` // samples and trials; nil: interference is not searched
	Evict        evict.State         // evictions and the frozen pod
	Publish      publish.State       // writes to the API
}

// FileState is what is remembered of one file.
type FileState struct {
	model.File
	Refused  *Refusal  `json:",omitempty"`
	Since    time.Time // start of the window in which Repairs are counted
	Repairs  int       // times that another writer changed the file in this window
	Fighting bool      // more than fightRepairs in a whole window: repaired once every fightAnswer
	Last     time.Time // when another writer last changed it
	Answered time.Time // when it was last repaired while fighting
}

// Refusal is a value that the kernel refused, or that was not written because of memory in use, and the group at that
// time.
type Refusal struct {
	Value model.Value
	Errno string
	Inode uint64    // of the pod's cgroup
	Size  int       // number of directories in the pod's cgroup
	Use   int64     `json:",omitempty"` // memory in use, above the limit Value, in bytes; 0: not known
	Again time.Time `json:",omitzero"`  // when such a limit is tried again although nothing around it changed
}

// next records what happened to files, defers the settings that must wait, and sets the time of the next round.
func (s State) next(n *model.Node, plan *model.Plan) State {
	if len(s.Files) == 0 && len(n.Incidents) == 0 {
		return s
	}
	files := slices.Clone(s.Files)
	for _, incident := range n.Incidents {
		i, found := slices.BinarySearchFunc(files, incident.File, compareFile)
		if !found {
			files = slices.Insert(files, i, FileState{File: incident.File})
		}
		files[i].note(n, incident)
		if incident.Kind == model.Overwritten && !files[i].Fighting {
			forgetRefusals(files, incident.Dir)
		}
	}
	for i := range files {
		if files[i].calm(n.Now) {
			forgetRefusals(files, files[i].Dir)
		}
	}
	files = slices.DeleteFunc(files, func(f FileState) bool {
		i, planned := slices.BinarySearchFunc(plan.Settings, f.File,
			func(s model.Setting, f model.File) int { return s.File.Compare(f) })
		return !planned || f.quiet(n.Now, &plan.Settings[i])
	})
	for i := range files {
		j, _ := slices.BinarySearchFunc(plan.Settings, files[i].File,
			func(s model.Setting, f model.File) int { return s.File.Compare(f) })
		files[i].apply(n, plan, &plan.Settings[j])
	}
	s.Files = files
	return s
}

func compareFile(f FileState, file model.File) int { return f.File.Compare(file) }

// forgetRefusals lets refused writes below and above a directory be tried again, because another writer changed
// something there: a quota that did not fit into its parent's may fit now. While a writer fights for the directory that
// proves nothing, and a write would be refused at every repair.
func forgetRefusals(files []FileState, dir string) {
	for i := range files {
		if d := files[i].Dir; strings.HasPrefix(d, dir) || strings.HasPrefix(dir, d) {
			files[i].Refused = nil
		}
	}
}

// note records one incident.
func (f *FileState) note(n *model.Node, incident model.Incident) {
	if incident.Kind != model.Overwritten {
		group := groupOf(n, f.Dir)
		f.Refused = &Refusal{Value: incident.Value, Errno: incident.Errno, Inode: group.Inode, Size: len(group.Containers)}
		if f.Knob == model.MemoryMax && (incident.Kind == model.Exceeded || incident.Errno == "EBUSY") {
			f.Refused.Use, f.Refused.Again = incident.Use, n.Now.Add(crowdedFor)
		}
		return
	}
	f.Last = n.Now
	if n.Now.Sub(f.Since) > fightWindow {
		f.Fighting = f.Fighting || f.Repairs > fightRepairs
		f.Since, f.Repairs = n.Now, 0
	}
	f.Repairs++
}

// calm ends a fight after a window without a change by the other writer, and reports whether it did.
func (f *FileState) calm(now time.Time) bool {
	if !f.Fighting || now.Sub(f.Last) <= fightWindow {
		return false
	}
	f.Fighting = false
	return true
}

// quiet reports whether the file need not be remembered any more.
func (f *FileState) quiet(now time.Time, s *model.Setting) bool {
	if f.Refused != nil && f.Refused.Value != s.Value {
		f.Refused = nil
	}
	return f.Refused == nil && now.Sub(f.Last) > fightWindow
}

// apply defers the file's setting if it must wait.
func (f *FileState) apply(n *model.Node, plan *model.Plan, s *model.Setting) {
	if s.Deferred != nil {
		return
	}
	if r := f.Refused; r != nil {
		group := groupOf(n, f.Dir)
		same := group.Inode == r.Inode && len(group.Containers) == r.Size && s.Value == r.Value
		switch {
		case same && r.Again.IsZero():
			s.Deferred = &model.Reason{Code: model.RejectedByKernel, Key: f.Knob.String(), Text: r.Errno}
			notify(n, plan, f.Dir, *s.Deferred)
			return
		case same && n.Now.Before(r.Again):
			s.Deferred = &model.Reason{Code: model.MemoryInUse}
			if r.Use > 0 {
				s.Deferred.Operands = []model.Operand{{Name: "use", Value: r.Use, Unit: model.UnitBytes}}
			}
			notify(n, plan, f.Dir, model.Reason{
				Code: model.MemoryInUse, Key: f.Knob.String(), Text: s.Value.String(),
				Fix: "the limit counts when less is used; start the pod anew to have it now",
			})
			wake(plan, r.Again)
			return
		}
		f.Refused = nil
	}
	if !f.Fighting {
		return
	}
	why := model.Reason{Code: model.ForeignWriter, Key: f.Knob.String(), Text: f.Dir,
		Fix: "stop the other writer; waterline doctor helps to find it"}
	notify(n, plan, f.Dir, why)
	if again := f.Answered.Add(fightAnswer); n.Now.Before(again) {
		s.Deferred = &why
		wake(plan, again)
		return
	}
	f.Answered = n.Now
	wake(plan, n.Now.Add(fightAnswer))
}

// notify adds a notice for the owner of the pod that a directory belongs to, or of the node.
func notify(n *model.Node, plan *model.Plan, dir string, why model.Reason) {
	notice := model.Notice{Reason: why}
	if pod := podOf(podsByDir(n), dir); pod != nil {
		notice.UID, notice.Namespace, notice.Name = pod.APIUID, pod.Namespace, pod.Name
	}
	plan.Notices = append(plan.Notices, notice)
}

// groupOf returns the cgroup of the pod that a directory belongs to, the zero value for a class.
func groupOf(n *model.Node, dir string) model.PodGroup {
	for _, group := range n.Tree.Pods {
		if dir == group.Dir || strings.HasPrefix(dir, group.Dir+"/") {
			return group
		}
	}
	return model.PodGroup{}
}

// wake brings the time of the next round forward.
func wake(plan *model.Plan, at time.Time) {
	if plan.Next.IsZero() || at.Before(plan.Next) {
		plan.Next = at
	}
}
