package agentrun

import (
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

func TestPolicy(t *testing.T) {
	for _, by := range []model.SuppressMethod{
		model.SuppressByNone, model.SuppressByArithmetic, model.SuppressOnHarm,
	} {
		text, err := Policy("", by)
		if err != nil {
			t.Fatal(err)
		}
		got, err := kube.ParsePolicy([]byte(text))
		if p := &got.Policy; err != nil || p.Mode != model.ModeEnforce || p.Suppress.By != by || p.CPU.Waterline != 1000 {
			t.Errorf("%s: %+v, %v", by, got, err)
		}
	}
	if _, err := Policy(filepath.Join(t.TempDir(), "none.yaml"), ""); err == nil {
		t.Error("no error for a policy file that does not exist")
	}
}
