package agent

import (
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestIdentify walks a container through its starts: the runtime reports each instance before the API shows it.
func TestIdentify(t *testing.T) {
	const first, second = "0123456789aa", "0123456789bb"
	pod := func(id string) *model.Pod {
		p := fixture.Pod("job", model.BestEffort)
		p.Containers = []model.Container{{Name: "main", ID: id}, {Name: "side", ID: "0123456789cc"}}
		return p
	}
	reports := func(ids ...string) (all []model.RuntimeContainer) {
		for _, id := range ids {
			all = append(all, model.RuntimeContainer{PodUID: "job", Name: "main", ID: id})
		}
		return all
	}
	for _, step := range []struct {
		name     string
		groups   []string // of the pod's containers
		shown    string
		reported []model.RuntimeContainer
		want     string // id of the container
		left     int
	}{
		{"it starts", []string{first}, "", reports(first), first, 1},
		{"in a scope of systemd", []string{"cri-containerd-" + first + ".scope"}, "", reports(first), first, 1},
		{"the API shows it", []string{first}, first, reports(first), first, 0},
		{"it starts again, and the last one's group is still there", []string{first, second}, first, reports(second),
			second, 1},
		{"nothing is reported", []string{second}, first, nil, first, 0},
		{"another instance followed, which was not reported", []string{second}, second, reports(first), second, 1},
		{"it has no group any more", nil, first, reports(first), first, 0},
		{"its pod is not listed yet", nil, "", reports(first), "", 1},
		{"of a pod without a group", []string{first}, "",
			[]model.RuntimeContainer{{PodUID: "gone", Name: "main", ID: first}}, "", 0},
		{"a container that the API does not know", []string{first}, "",
			[]model.RuntimeContainer{{PodUID: "job", Name: "debug", ID: first}}, "", 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			tree := model.Tree{Pods: map[string]model.PodGroup{"job": {Dir: "job", Containers: step.groups}}}
			shown := pod(step.shown)
			before := []*model.Pod{fixture.Pod("a", model.Burstable), shown, fixture.Pod("z", model.Burstable)}
			after, left := identify(slices.Clone(before), &tree, step.reported)
			if got := after[1].Containers[0].ID; got != step.want || len(left) != step.left {
				t.Errorf("the id is %q, and %v is still to be shown; want %q and %d", got, left, step.want, step.left)
			}
			if after[0] != before[0] || after[2] != before[2] || after[1].Containers[1].ID != "0123456789cc" {
				t.Error("something else changed")
			}
			if diff := fixture.Diff(pod(step.shown), shown); diff != "" {
				t.Errorf("the pod of the argument changed:\n%s", diff)
			}
		})
	}
}

// TestForgedIdentity checks that of two pods with one UID, both get the id: which of them counts is decided later.
func TestForgedIdentity(t *testing.T) {
	const id = "0123456789aa"
	pods := []*model.Pod{fixture.Pod("job", model.BestEffort), fixture.Pod("job", model.BestEffort)}
	for _, p := range pods {
		p.Containers = []model.Container{{Name: "main"}}
	}
	tree := model.Tree{Pods: map[string]model.PodGroup{"job": {Dir: "job", Containers: []string{id}}}}
	after, left := identify(pods, &tree, []model.RuntimeContainer{{PodUID: "job", Name: "main", ID: id}})
	if after[0].Containers[0].ID != id || after[1].Containers[0].ID != id || len(left) != 1 {
		t.Errorf("ids %q and %q, left %v", after[0].Containers[0].ID, after[1].Containers[0].ID, left)
	}
}
