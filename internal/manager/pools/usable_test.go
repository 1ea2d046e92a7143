package pools

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
)

// TestUsable edits the spec of a pool to one that cannot be used. The pool goes on by the last one that could, which a
// status has, also in another replica; without one it does nothing. The decision knows.
func TestUsable(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	r.k.status.ValidSpec = specText(&r.p.Spec)
	used, read, err := r.k.usable(r.p)
	if err != nil || used != r.p || read.Floor != r.read.Floor {
		t.Errorf("a valid spec: %+v, %v", used, err)
	}
	bad := r.p.DeepCopy()
	bad.Spec.Size.Ceiling = &v1alpha1.ResourceSpec{CPU: resource.MustParse("1m"), Memory: resource.MustParse("1")}
	bad.Spec.YARN.ResourceManagers = []string{"http://other.example:8088"}
	used, read, err = r.k.usable(bad)
	if err == nil || !strings.Contains(err.Error(), "goes on by its last valid spec") ||
		!strings.Contains(err.Error(), "spec.size.ceiling") {
		t.Errorf("the error is %v", err)
	}
	if used == nil || used.UID != r.p.UID || read.Ceiling != r.read.Ceiling ||
		used.Spec.YARN.ResourceManagers[0] != r.p.Spec.YARN.ResourceManagers[0] {
		t.Fatalf("an invalid spec: %+v, %+v", used, read)
	}
	for _, invalid := range []bool{false, true} {
		r.p, r.read, r.invalid = used, read, invalid
		if s := r.settings(); s.Invalid != invalid {
			t.Errorf("the settings are %+v", s)
		}
		if s := r.crewSettings(&olap.Kind{}); s.Invalid != invalid {
			t.Errorf("the settings of workers of one size are %+v", s)
		}
	}
	long := r.p.DeepCopy()
	long.Spec.Template.Annotations = map[string]string{"note": strings.Repeat("a", maxSpec)}
	if text := specText(&long.Spec); text != "" {
		t.Errorf("a spec of %d bytes is kept", len(text))
	}
	for _, text := range []string{"", "{", specText(&bad.Spec)} {
		r.k.status.ValidSpec = text
		if used, _, err := r.k.usable(bad); used != nil || err == nil || strings.Contains(err.Error(), "goes on") {
			t.Errorf("without a spec that can be used: %+v, %v", used, err)
		}
	}
}
