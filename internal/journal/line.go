package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/interference"
	"github.com/waterline-io/waterline/internal/model"
)

// fullLineInterval is the number of lines from one full line to the next. A line that cannot be read makes the
// incremental lines up to the next full line unreadable too.
const fullLineInterval = 100

// ErrNoBase says that a line has only what changed since the previous line, which could not be used.
var ErrNoBase = errors.New("it has only what changed since the previous line, which could not be used")

// The versions of what a line means. There is a new one when an older version of Waterline would misread a line; a line
// without fields that this version knows is no reason. Lines are packed texts of lines.
const (
	textFormat   = 1
	packedFormat = 2
)

// line is a round as it is written. Beside hundreds of pods a round is mostly the same as the one before. So an
// incremental line holds only the elements of long lists that changed since the previous line of the file.
type line struct {
	node.Round
	Format int  `json:",omitempty"` // of a line that is whole; 0: 1
	GoesOn bool `json:",omitempty"`
	Gone   gone `json:",omitzero"` // with GoesOn, what those lists have no more
	Rows   rows `json:",omitzero"` // with GoesOn, lists of which only numbers differ
}

// rows are lists of numbers of pods, most of which differ each second. A nil one is written like other fields.
type rows struct {
	Load      []column `json:",omitempty"` // of [model.Load.Pods]
	Waits     []column `json:",omitempty"` // of [model.Node.Waits]
	Marks     []column `json:",omitempty"` // of [model.Observe.Waits]
	Harm      []column `json:",omitempty"` // of [contention.State.Pods]
	Baselines []column `json:",omitempty"` // of [contention.State.Baselines]
	Tracks    []column `json:",omitempty"` // of [interference.State.Tracks]
	Samples   []column `json:",omitempty"` // of [interference.State.Rows]
}

// gone names elements of the lists of a round.
type gone struct {
	Pods     []string     `json:",omitempty"` // UIDs
	Groups   []string     `json:",omitempty"` // likewise, of [model.Tree.Pods]
	Owned    []model.File `json:",omitempty"`
	Settings []model.File `json:",omitempty"`
	Details  []string     `json:",omitempty"` // UIDs, of [model.Observe.Pods]
	Samples  []string     `json:",omitempty"` // UIDs, of [interference.State.Rows]
}

// shorten makes a line incremental to a round.
func shorten(r, before *node.Round) line {
	l := line{Round: *r, GoesOn: true}
	l.Node.Pods, l.Gone.Pods = pods.shorten(before.Node.Pods, r.Node.Pods)
	l.Node.Owned, l.Gone.Owned = owned.shorten(before.Node.Owned, r.Node.Owned)
	l.Plan.Settings, l.Gone.Settings = settings.shorten(before.Plan.Settings, r.Plan.Settings)
	l.Plan.Observe.Pods, l.Gone.Details = details.shorten(before.Plan.Observe.Pods, r.Plan.Observe.Pods)
	l.shortenRows(before)
	l.Node.Tree.Pods = nil
	for uid, group := range r.Node.Tree.Pods {
		if was, known := before.Node.Tree.Pods[uid]; !known || !sameGroup(was, group) {
			if l.Node.Tree.Pods == nil {
				l.Node.Tree.Pods = map[string]model.PodGroup{}
			}
			l.Node.Tree.Pods[uid] = group
		}
	}
	for uid := range before.Node.Tree.Pods {
		if _, still := r.Node.Tree.Pods[uid]; !still {
			l.Gone.Groups = append(l.Gone.Groups, uid)
		}
	}
	return l
}

// shortenRows makes columns of lists of numbers.
func (l *line) shortenRows(before *node.Round) {
	if was, is := before.Node.Load, l.Node.Load; was != nil && is != nil {
		load := *is
		load.Pods, l.Rows.Load = less(was.Pods, is.Pods)
		l.Node.Load = &load
	}
	l.Node.Waits, l.Rows.Waits = less(before.Node.Waits, l.Node.Waits)
	l.Plan.Observe.Waits, l.Rows.Marks = less(before.Plan.Observe.Waits, l.Plan.Observe.Waits)
	was, is := &before.State.Contention, &l.State.Contention
	is.Pods, l.Rows.Harm = less(was.Pods, is.Pods)
	is.Baselines, l.Rows.Baselines = less(was.Baselines, is.Baselines)
	if was, is := before.State.Interference, l.State.Interference; was != nil && is != nil {
		state := *is
		state.Tracks, l.Rows.Tracks = less(was.Tracks, is.Tracks)
		state.Rows, l.Gone.Samples = samples.shorten(was.Rows, is.Rows)
		if len(state.Rows) == len(is.Rows) { // all have a sample more
			state.Rows, l.Rows.Samples = less(was.Rows, is.Rows)
		}
		l.State.Interference = &state
	}
}

// less returns a list, or instead the columns of its numbers.
func less[T comparable](was, is []T) ([]T, []column) {
	if columns := shortRows(was, is); columns != nil {
		return nil, columns
	}
	return is, nil
}

// completeRows makes lists of the columns of a line.
func completeRows(r, before *node.Round, all *rows) error {
	was, is := &before.State.Contention, &r.State.Contention
	var errs []error
	if all.Load != nil && r.Node.Load != nil && before.Node.Load != nil {
		errs = append(errs, more(&r.Node.Load.Pods, before.Node.Load.Pods, all.Load))
	}
	errs = append(errs, more(&r.Node.Waits, before.Node.Waits, all.Waits),
		more(&r.Plan.Observe.Waits, before.Plan.Observe.Waits, all.Marks),
		more(&is.Pods, was.Pods, all.Harm),
		more(&is.Baselines, was.Baselines, all.Baselines))
	if was, is := before.State.Interference, r.State.Interference; was != nil && is != nil {
		errs = append(errs, more(&is.Tracks, was.Tracks, all.Tracks), more(&is.Rows, was.Rows, all.Samples))
	}
	return errors.Join(errs...)
}

// more makes a list of columns, if there are any.
func more[T any](is *[]T, was []T, columns []column) (err error) {
	if columns != nil {
		*is, err = longRows(was, columns)
	}
	return err
}

// parse makes a round of a line and of the round before it, which stays as it is; nil: that could not be read.
func parse(text []byte, before *node.Round) (node.Round, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return node.Round{}, fmt.Errorf("not a round of a journal, or cut short: %w", err)
	}
	r := l.Round
	switch {
	case l.Format > textFormat:
		return node.Round{}, fmt.Errorf("not a round of a journal: text in format %d", l.Format)
	case r.Node.Now.IsZero() || slices.Contains(r.Node.Pods, nil):
		return node.Round{}, errors.New("not a round of a journal: it has no time, or a pod that is null")
	case !l.GoesOn:
		return r, nil
	case before == nil:
		return node.Round{}, ErrNoBase
	}
	r.Node.Pods = pods.complete(before.Node.Pods, r.Node.Pods, l.Gone.Pods)
	r.Node.Owned = owned.complete(before.Node.Owned, r.Node.Owned, l.Gone.Owned)
	r.Plan.Settings = settings.complete(before.Plan.Settings, r.Plan.Settings, l.Gone.Settings)
	r.Plan.Observe.Pods = details.complete(before.Plan.Observe.Pods, r.Plan.Observe.Pods, l.Gone.Details)
	if now, was := r.State.Interference, before.State.Interference; now != nil && was != nil {
		now.Rows = samples.complete(was.Rows, now.Rows, l.Gone.Samples)
	}
	if err := completeRows(&r, before, &l.Rows); err != nil {
		return node.Round{}, err
	}
	groups := map[string]model.PodGroup{}
	maps.Copy(groups, before.Node.Tree.Pods)
	for _, uid := range l.Gone.Groups {
		delete(groups, uid)
	}
	maps.Copy(groups, r.Node.Tree.Pods)
	r.Node.Tree.Pods = groups
	return r, nil
}

// list is a kind of list, ordered by what its elements are called.
type list[T, K any] struct {
	name    func(T) K
	compare func(K, K) int
	same    func(T, T) bool
}

var (
	pods = list[*model.Pod, string]{
		name: func(p *model.Pod) string { return p.UID }, compare: strings.Compare,
		same: func(a, b *model.Pod) bool { return a == b }, // a pod that changes is another one
	}
	owned = list[model.Owned, model.File]{
		name: func(o model.Owned) model.File { return o.File }, compare: model.File.Compare,
		same: func(a, b model.Owned) bool { return a == b },
	}
	samples = list[interference.Row, string]{
		name: func(r interference.Row) string { return r.UID }, compare: strings.Compare,
		same: func(a, b interference.Row) bool { return a == b },
	}
	details = list[model.Detail, string]{
		name: func(d model.Detail) string { return d.UID }, compare: strings.Compare,
		same: func(a, b model.Detail) bool { return a == b },
	}
	settings = list[model.Setting, model.File]{
		name: func(s model.Setting) model.File { return s.File }, compare: model.File.Compare, same: sameSetting,
	}
)

// shorten returns the elements of a list that are not as they were, and the names that the old list had alone. Several
// elements can have one name, such as a pod and another that claims to be its mirror. If one of them differs, all do.
func (l *list[T, K]) shorten(was, is []T) (differ []T, gone []K) {
	for len(is) > 0 {
		name, n, before := l.name(is[0]), l.run(is), 0
		for len(was) > 0 && l.compare(l.name(was[0]), name) < 0 {
			gone, was = append(gone, l.name(was[0])), was[1:]
		}
		if len(was) > 0 && l.compare(l.name(was[0]), name) == 0 {
			before = l.run(was)
		}
		if !slices.EqualFunc(was[:before], is[:n], l.same) {
			differ = append(differ, is[:n]...)
		}
		was, is = was[before:], is[n:]
	}
	for _, t := range was {
		gone = append(gone, l.name(t))
	}
	return differ, gone
}

// run returns how many elements at the beginning of a list have one name. The list must not be empty.
func (l *list[T, K]) run(of []T) int {
	n := 1
	for n < len(of) && l.compare(l.name(of[n]), l.name(of[0])) == 0 {
		n++
	}
	return n
}

// complete returns the list that was shortened.
func (l *list[T, K]) complete(was, differ []T, gone []K) []T {
	all := slices.Clone(differ)
	for _, t := range was {
		_, differs := slices.BinarySearchFunc(differ, l.name(t), func(t T, name K) int { return l.compare(l.name(t), name) })
		if _, went := slices.BinarySearchFunc(gone, l.name(t), l.compare); !differs && !went {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b T) int { return l.compare(l.name(a), l.name(b)) })
	return all
}

func sameGroup(a, b model.PodGroup) bool {
	return a.Dir == b.Dir && a.Inode == b.Inode && a.Idle == b.Idle && slices.Equal(a.Containers, b.Containers)
}

func sameSetting(a, b model.Setting) bool {
	return a.File == b.File && a.Value == b.Value && a.Release == b.Release && sameReason(&a.Reason, &b.Reason) &&
		sameReason(a.Deferred, b.Deferred)
}

func sameReason(a, b *model.Reason) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Code == b.Code && a.Key == b.Key && a.Text == b.Text && a.Fix == b.Fix && slices.Equal(a.Operands, b.Operands)
}
