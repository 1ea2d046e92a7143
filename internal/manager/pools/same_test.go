package pools

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// full returns the status of a worker with a value in each field.
func full() v1alpha1.WorkerStatus {
	at := metav1.Unix(1e6, 0)
	return v1alpha1.WorkerStatus{
		Name: "w", Node: "n", Pod: "p", Phase: "Active", Reason: "r", Message: "m", Since: metav1.Unix(1e6, 0),
		Total: amountOf(pool.Size{MemoryMiB: 1024, VCores: 1}), Containers: 1, Until: &at, Ended: &at, Attempts: 1,
	}
}

// TestSameWorker changes one field after the other: each makes a difference, as it does for Kubernetes. Times and
// amounts that are only written in another way make none.
func TestSameWorker(t *testing.T) {
	other := full()
	other.Since = metav1.NewTime(other.Since.In(time.FixedZone("x", 3600)))
	other.Total.Memory = resource.MustParse("1024Mi")
	if a := full(); !sameWorker(a, other) || !equality.Semantic.DeepEqual(a, other) {
		t.Errorf("%+v and %+v differ", a, other)
	}
	for i := range reflect.TypeFor[v1alpha1.WorkerStatus]().NumField() {
		none, changed := full(), full()
		f := reflect.ValueOf(&changed).Elem().Field(i)
		if f.IsZero() {
			t.Errorf("full has no field %d", i)
		}
		reflect.ValueOf(&none).Elem().Field(i).SetZero()
		switch v := f.Addr().Interface().(type) {
		case *metav1.Time:
			*v = metav1.NewTime(v.Add(time.Second))
		case **metav1.Time:
			next := metav1.NewTime((*v).Add(time.Second))
			*v = &next
		case **v1alpha1.YARNResources:
			(*v).VCores++
		case *int32:
			*v++
		default:
			f.SetString("other")
		}
		for _, other := range []v1alpha1.WorkerStatus{none, changed} {
			if sameWorker(full(), other) || sameWorker(other, full()) || equality.Semantic.DeepEqual(full(), other) {
				t.Errorf("field %s makes no difference", reflect.TypeFor[v1alpha1.WorkerStatus]().Field(i).Name)
			}
		}
	}
	more := full()
	if more.Total.Memory = resource.MustParse("1025Mi"); sameWorker(full(), more) {
		t.Error("more memory makes no difference")
	}
}

// TestSame compares statuses with and without what is there to be read only.
func TestSame(t *testing.T) {
	for about, c := range map[string]struct {
		change                 func(s *v1alpha1.WorkerPoolStatus)
		nothing, numbers, rest bool // they are the same without these
	}{
		"nothing":      {func(*v1alpha1.WorkerPoolStatus) {}, true, true, true},
		"a number":     {func(s *v1alpha1.WorkerPoolStatus) { s.Workers[7].Containers++ }, false, true, true},
		"a total":      {func(s *v1alpha1.WorkerPoolStatus) { s.Total.VCores++ }, false, true, true},
		"a phase":      {func(s *v1alpha1.WorkerPoolStatus) { s.Workers[7].Phase = "Lost" }, false, false, true},
		"the active":   {func(s *v1alpha1.WorkerPoolStatus) { s.Active++ }, false, false, true},
		"a message":    {func(s *v1alpha1.WorkerPoolStatus) { s.Conditions[0].Message = "x" }, false, false, true},
		"a condition":  {func(s *v1alpha1.WorkerPoolStatus) { s.Conditions[0].Reason = "x" }, false, false, false},
		"a pod":        {func(s *v1alpha1.WorkerPoolStatus) { s.Workers[7].Pod = "x" }, false, false, false},
		"an attempt":   {func(s *v1alpha1.WorkerPoolStatus) { s.Workers[7].Attempts++ }, false, false, false},
		"a worker":     {func(s *v1alpha1.WorkerPoolStatus) { s.Workers = s.Workers[1:] }, false, false, false},
		"the manager":  {func(s *v1alpha1.WorkerPoolStatus) { s.ResourceManager = nil }, false, false, false},
		"a generation": {func(s *v1alpha1.WorkerPoolStatus) { s.ObservedGeneration++ }, false, false, false},
	} {
		a := largeStatus(30)
		a.ResourceManager = &v1alpha1.ResourceManagerStatus{Address: "a"}
		a.Conditions = []metav1.Condition{{Type: "Ready", Reason: "r", Message: "m"}}
		b, before := a.DeepCopy(), a.DeepCopy()
		c.change(b)
		changed := b.DeepCopy()
		got := []bool{same(a, b, withoutNothing), same(a, b, withoutNumbers), same(b, a, withoutPhases)}
		if want := []bool{c.nothing, c.numbers, c.rest}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", about, got, want)
		}
		if !equality.Semantic.DeepEqual(a, before) || !equality.Semantic.DeepEqual(b, changed) {
			t.Errorf("%s: the comparison changed a status", about)
		}
	}
}

// TestToMark checks which pods are marked, and which of them wait until what is urgent is done.
func TestToMark(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	r.state.Known = true
	at := time.Date(2026, 11, 28, 5, 0, 0, 0, time.UTC)
	add := func(name string, edit func(pl *place)) {
		marks := pool.Marks{Registered: true, Grown: at}
		pl := place{worker: &pool.Worker{Name: name, Pod: &pool.Pod{}}, pod: &podRow{name: name, marks: marks}}
		pl.step = pool.Step{Verb: pool.Wait, Marks: marks}
		edit(&pl)
		r.places = append(r.places, &pl)
	}
	add("same", func(*place) {})
	add("same time", func(pl *place) { pl.step.Marks.Grown = at.In(time.FixedZone("UTC", 0)) })
	add("marks", func(pl *place) { pl.step.Marks.Shrunk = at })
	add("held", func(pl *place) { pl.step.Held = 5 })
	add("marks and idle", func(pl *place) { pl.step.Marks.Shrunk, pl.idle = at, true })
	add("idle", func(pl *place) { pl.idle = true })
	add("busy", func(pl *place) { pl.pod.idle = true })
	add("resized", func(pl *place) { pl.step.Verb, pl.step.Marks.Shrunk = pool.Resize, at })
	add("without a pod", func(pl *place) { pl.worker.Pod, pl.pod = nil, nil })
	names := func(all []*place) (names []string) {
		for _, pl := range all {
			names = append(names, pl.worker.Name)
		}
		return names
	}
	changed, busy, idle := r.toMark()
	got := [][]string{names(changed), names(busy), names(idle)}
	if want := [][]string{{"marks", "held", "marks and idle"}, {"busy"}, {"idle"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
