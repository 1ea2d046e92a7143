package reference

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/convert"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestConverted checks that the API server takes every policy that waterline convert makes of the peers' fixtures.
func TestConverted(t *testing.T) {
	policies := readCRD(t, "../../deploy/chart/crds/waterline.io_colocationpolicies.yaml")
	for _, name := range []string{"koordinator", "nodeslos", "crane", "crane-canary", "cpu-share-syncer"} {
		documents := converted(t, name)
		if len(documents) == 0 {
			t.Errorf("%s has no policy", name)
		}
		for _, d := range documents {
			if errs := policies.refuses(t, d.Object); len(errs) > 0 {
				t.Errorf("%s, policy %s: %v", name, d.Name(), errs.ToAggregate())
			}
		}
	}
}

// TestConvertedAdmission checks that the webhook admits the pods that Koordinator's profiles selected, as batch and
// with the tier that their priority class named, once the policies enforce.
func TestConvertedAdmission(t *testing.T) {
	var sources []admit.Source
	for _, d := range converted(t, "koordinator") {
		document, err := yaml.Marshal(d.Object)
		if err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.ColocationPolicy
		if err := yaml.UnmarshalStrict(document, &p); err != nil {
			t.Fatal(err)
		}
		p.Spec.Mode = "Enforce"
		policy, err := kube.Policy(&p)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, admit.Source{Policy: policy, Pods: kube.BatchRules(&p)})
	}
	rules := admit.Compile(sources, false)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "search", Labels: map[string]string{"waterline.io/colocation": "enabled"},
	}}
	for app, want := range map[string]string{"index": "waterline-mid", "web": ""} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "search", Labels: map[string]string{"app": app},
		}}
		after, outcome := rules.Mutate(pod, namespace)
		if after.Spec.PriorityClassName != want || outcome.Changed != (want != "") {
			t.Errorf("%s: class %q, %+v; want %q", app, after.Spec.PriorityClassName, outcome, want)
		}
	}
}

// converted returns the policies of an output of the converter's tests.
func converted(t *testing.T, name string) []convert.Document {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../internal/convert/testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documents, err := convert.Read(name, content)
	if err != nil {
		t.Fatal(err)
	}
	return documents
}
