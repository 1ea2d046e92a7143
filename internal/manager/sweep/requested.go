package sweep

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// MaxOwners is the number of owners with metrics of their own: Jobs have new names each day, and may be thousands.
const MaxOwners = 50

// longestOwner is the length of an owner's kind and name in metrics.
const longestOwner = 128

// Requester is an owner of batch pods.
type Requester struct {
	Namespace string
	Owner     string // its kind and name, such as Job/burn; "": all others of the namespace
}

// Requests has what the batch pods on nodes request of both tiers, by owner.
type Requests map[Requester]model.Amount

// add counts a pod.
func (r Requests) add(pod *corev1.Pod) {
	p, there := kube.Pod(pod, "")
	if !there || p.Ended || pod.Spec.NodeName == "" {
		return
	}
	kind, rest, _ := strings.Cut(kube.Owner(pod), "/")
	_, name, _ := strings.Cut(rest, "/")
	// A tenant writes owner references, of any length.
	of := Requester{pod.Namespace, kube.Shorten(strings.ToValidUTF8(kind+"/"+name, "?"), longestOwner)}
	r.count(of, p.Batch)
	r.count(of, p.Mid)
}

func (r Requests) count(of Requester, a model.Amount) {
	if a != (model.Amount{}) {
		r[of] = r[of].Plus(a)
	}
}

// Largest returns the owners that request most CPU, and for each namespace the sum of its others.
func (r Requests) Largest(most int) Requests {
	owners := slices.SortedFunc(maps.Keys(r), func(a, b Requester) int {
		return cmp.Or(cmp.Compare(r[b].CPU, r[a].CPU), cmp.Compare(r[b].Memory, r[a].Memory),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Owner, b.Owner))
	})
	all := Requests{}
	for i, of := range owners {
		amount := r[of]
		if i >= most {
			of.Owner = ""
		}
		all.count(of, amount)
	}
	return all
}
