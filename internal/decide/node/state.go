package node

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/evict"
	"github.com/waterline-io/waterline/internal/decide/node/interference"
	"github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/decide/node/publish"
	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/decide/node/suppress"
	"github.com/waterline-io/waterline/internal/model"
)

// The bounds on answering another writer. The kubelet and systemd rewrite a file at most once an event of theirs and are
// always answered at once; only a loop that fights us comes beyond this.
const (
	fightWindow  = 10 * time.Second
	fightRepairs = 100 // in one window: ten a second
	fightAnswer  = time.Second
)

// crowdedFor is how long a memory limit is left alone that was below what its group uses. To look again costs one read.
const crowdedFor = 10 * time.Second

// State is what one round hands to the next. No round changes a state that it was given: what is not copied is never
// changed once it is in a state. All of it is written to the journal, so that any round can be replayed.
type State struct {
	Files []FileState   // files with which something is the matter, ordered
	CPUs  cpuset.State  // who has CPUs of its own
	Peaks predict.State // what was learned of the online pods
	Slack slack.State   // what is offered

	Suppress     suppress.State      // what batch may use
	Quota        quota.State         // whether online pods may burst
	Memory       memory.State        // whom to ask for memory
	Interference *interference.State `json:",omitempty"` // which pods make online pods wait; nil: not searched yet
	Evict        evict.State         // which pod is evicted
	Publish      publish.State       // what was written to the API
}

// FileState is what is remembered of one file.
type FileState struct {
	model.File
	Refused  *Refusal  `json:",omitempty"`
	Since    time.Time // start of the window in which Repairs are counted
	Repairs  int       // times that another writer changed the file in this window
	Fighting bool      // more than fightRepairs in a whole window: answered once every fightAnswer
	Last     time.Time // when another writer last changed it
	Answered time.Time // when we last wrote while fighting
}

// Refusal is a value that the kernel did not take, or that was not written, and what stood around it then.
type Refusal struct {
	Value model.Value
	Errno string
	Inode uint64    // of the pod's cgroup
	Size  int       // number of directories in the pod's cgroup
	Use   int64     `json:",omitempty"` // memory in use, above the limit that Value is, in bytes; 0: not known
	Again time.Time `json:",omitzero"`  // of such a limit: when it is tried again though nothing around it has changed
}

// next notes what happened to files, holds the settings that must wait, and says when to look again.
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
		i, planned := slices.BinarySearchFunc(plan.Settings, f.File, func(s model.Setting, f model.File) int { return s.File.Compare(f) })
		return !planned || f.quiet(n.Now, &plan.Settings[i])
	})
	for i := range files {
		j, _ := slices.BinarySearchFunc(plan.Settings, files[i].File, func(s model.Setting, f model.File) int { return s.File.Compare(f) })
		files[i].apply(n, plan, &plan.Settings[j])
	}
	s.Files = files
	return s
}

func compareFile(f FileState, file model.File) int { return f.File.Compare(file) }

// forgetRefusals lets refused writes be tried again whose surroundings another writer changed: a quota that did not fit
// into its parent's may fit now. While somebody fights for the surroundings that proves nothing, and a write would be
// refused at every answer.
func forgetRefusals(files []FileState, dir string) {
	for i := range files {
		if d := files[i].Dir; strings.HasPrefix(d, dir) || strings.HasPrefix(dir, d) {
			files[i].Refused = nil
		}
	}
}

// note takes in one incident.
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

// calm ends a fight that nobody has fought for a while and reports whether it did.
func (f *FileState) calm(now time.Time) bool {
	if !f.Fighting || now.Sub(f.Last) <= fightWindow {
		return false
	}
	f.Fighting = false
	return true
}

// quiet reports whether nothing is the matter with the file any more.
func (f *FileState) quiet(now time.Time, s *model.Setting) bool {
	if f.Refused != nil && f.Refused.Value != s.Value {
		f.Refused = nil
	}
	return f.Refused == nil && now.Sub(f.Last) > fightWindow
}

// apply holds the file's setting where it must wait.
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
				Code: model.MemoryInUse, Key: f.Knob.String(), Text: s.Value.String(), Fix: "the limit counts when less is used; start the pod anew to have it now",
			})
			wake(plan, r.Again)
			return
		}
		f.Refused = nil
	}
	if !f.Fighting {
		return
	}
	why := model.Reason{Code: model.ForeignWriter, Key: f.Knob.String(), Text: f.Dir, Fix: "stop the other writer; waterline doctor helps to find it"}
	notify(n, plan, f.Dir, why)
	if again := f.Answered.Add(fightAnswer); n.Now.Before(again) {
		s.Deferred = &why
		wake(plan, again)
		return
	}
	f.Answered = n.Now
	wake(plan, n.Now.Add(fightAnswer))
}

// notify tells the owner of the pod that a directory belongs to, or of the node.
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
