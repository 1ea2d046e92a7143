package node

import (
	"path"
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
	Refused  Refusal   `json:",omitzero"`
	Since    time.Time // start of the window in which Repairs are counted
	Repairs  int       // times that another writer changed the file in this window
	Fighting bool      // more than fightRepairs in a whole window: repaired once every fightAnswer
	Last     time.Time // when another writer last changed it
	Answered time.Time // when it was last repaired while fighting
}

// next records what happened to files, defers the settings that must wait, and sets the time of the next round.
func (s State) next(n *model.Node, plan *model.Plan) State {
	if len(s.Files) == 0 && len(n.Incidents) == 0 {
		return s
	}
	groups := groupsByDir(n)
	files := slices.Clone(s.Files)
	for _, incident := range n.Incidents {
		i, found := slices.BinarySearchFunc(files, incident.File, compareFile)
		if !found {
			files = slices.Insert(files, i, FileState{File: incident.File})
		}
		if incident.Kind != model.Overwritten {
			files[i].refuse(n, incident, groupOf(groups, incident.Dir))
			continue
		}
		files[i].note(n.Now)
		if !files[i].Fighting {
			noteMove(files, incident.Dir)
		}
	}
	for i := range files {
		if files[i].calm(n.Now) {
			noteMove(files, files[i].Dir)
		}
	}
	s.Files = files[:0]
	for _, f := range files {
		i, planned := slices.BinarySearchFunc(plan.Settings, f.File,
			func(s model.Setting, f model.File) int { return s.File.Compare(f) })
		if !planned {
			continue
		}
		setting := &plan.Settings[i]
		if f.Refused.Tried || setting.Deferred != nil {
			f.Refused = Refusal{} // it was written, or is not to be written
		}
		if f.Refused.Times == 0 && n.Now.Sub(f.Last) > fightWindow {
			continue
		}
		if setting.Deferred == nil && !f.refuses(n, plan, setting, groupOf(groups, f.Dir)) {
			f.answer(n, plan, setting)
			f.Refused.Tried = f.Refused.Times > 0 && setting.Deferred == nil
		}
		s.Files = append(s.Files, f)
	}
	return s
}

func compareFile(f FileState, file model.File) int { return f.File.Compare(file) }

// noteMove lets refused writes below and above a directory be tried again, because another writer changed something
// there: a quota that did not fit into its parent's may fit now. While a writer fights for the directory that proves
// nothing, and a write would be refused at every repair.
func noteMove(files []FileState, dir string) {
	for i := range files {
		if d := files[i].Dir; files[i].Refused.Times > 0 && (strings.HasPrefix(d, dir) || strings.HasPrefix(dir, d)) {
			files[i].Refused.Moved = true
		}
	}
}

// note records that another writer changed the file.
func (f *FileState) note(now time.Time) {
	f.Last = now
	if now.Sub(f.Since) > fightWindow {
		f.Fighting = f.Fighting || f.Repairs > fightRepairs
		f.Since, f.Repairs = now, 0
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

// answer defers the repair of a file for which another writer fights, unless it is due.
func (f *FileState) answer(n *model.Node, plan *model.Plan, s *model.Setting) {
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

// groupsByDir returns the cgroups of pods by their directories.
func groupsByDir(n *model.Node) map[string]model.PodGroup {
	groups := make(map[string]model.PodGroup, len(n.Tree.Pods))
	for _, group := range n.Tree.Pods {
		groups[group.Dir] = group
	}
	return groups
}

// groupOf returns the cgroup of the pod that a directory belongs to, the zero value for a class.
func groupOf(groups map[string]model.PodGroup, dir string) model.PodGroup {
	if group, found := groups[dir]; found {
		return group
	}
	return groups[path.Dir(dir)]
}

// wake brings the time of the next round forward.
func wake(plan *model.Plan, at time.Time) {
	if plan.Next.IsZero() || at.Before(plan.Next) {
		plan.Next = at
	}
}
