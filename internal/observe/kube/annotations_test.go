package kube

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

func TestAnnotations(t *testing.T) {
	const share, alias, quota = v1alpha1.AnnotationCPUShare, v1alpha1.AnnotationCPUShareAlias, v1alpha1.AnnotationCPUQuota
	for _, c := range []struct {
		name        string
		annotations map[string]string
		shares      int64
		quota       model.QuotaMode
		notices     []model.Code
	}{
		{"nothing", nil, 0, "", nil},
		{"ours", map[string]string{share: "10240"}, 10240, "", nil},
		{"alias", map[string]string{alias: "10240"}, 10240, "", nil},
		{"both", map[string]string{share: "2048", alias: "10240"}, 2048, "", []model.Code{model.BothSpellings}},
		{
			"ours is bad, alias is not used", map[string]string{share: "x", alias: "10240"}, 0, "", []model.Code{
				model.BothSpellings, model.BadAnnotation,
			},
		},
		{"least", map[string]string{share: "2"}, 2, "", nil},
		{"most", map[string]string{share: "262144"}, 262144, "", nil},
		{"below", map[string]string{share: "1"}, 0, "", []model.Code{model.BadAnnotation}},
		{"zero", map[string]string{share: "0"}, 0, "", []model.Code{model.BadAnnotation}},
		{"negative", map[string]string{share: "-5"}, 0, "", []model.Code{model.BadAnnotation}},
		{"above", map[string]string{share: "262145"}, 0, "", []model.Code{model.BadAnnotation}},
		{"enormous", map[string]string{share: strings.Repeat("9", 5000)}, 0, "", []model.Code{model.BadAnnotation}},
		{"a fraction", map[string]string{share: "10.5"}, 0, "", []model.Code{model.BadAnnotation}},
		{"a unit", map[string]string{share: "2Ki"}, 0, "", []model.Code{model.BadAnnotation}},
		{"spaces", map[string]string{share: " 1024"}, 0, "", []model.Code{model.BadAnnotation}},
		{"empty", map[string]string{share: ""}, 0, "", []model.Code{model.BadAnnotation}},
		{"quota", map[string]string{quota: "unlimited"}, 0, model.QuotaUnlimited, nil},
		{"unknown quota", map[string]string{quota: "none"}, 0, "", []model.Code{model.BadAnnotation}},
	} {
		t.Run(c.name, func(t *testing.T) {
			parsed := ParseAnnotations(c.annotations)
			if parsed.Shares != c.shares || parsed.Quota != c.quota || len(parsed.Notices) != len(c.notices) {
				t.Fatalf("got %+v", parsed)
			}
			for i, n := range parsed.Notices {
				if n.Code != c.notices[i] || n.Key == "" || n.Fix == "" || len(n.String()) > 400 {
					t.Errorf("notice %d: %s", i, n)
				}
			}
		})
	}
}

// TestCPUAnnotations checks the values of annotations about CPUs, and that each annotation is read by itself.
func TestCPUAnnotations(t *testing.T) {
	const (
		manager, alias    = v1alpha1.AnnotationCPUManager, v1alpha1.AnnotationCPUManagerAlias
		placement, memory = v1alpha1.AnnotationCPUPlacement, v1alpha1.AnnotationCPUMemory
		hint              = v1alpha1.AnnotationCPUSetHint
	)
	for _, c := range []struct {
		name        string
		annotations map[string]string
		want        model.PodAnnotations
		notices     string
	}{
		{"none", map[string]string{manager: "none"}, model.PodAnnotations{CPUs: model.CPUNone}, ""},
		{"share", map[string]string{alias: "share"}, model.PodAnnotations{CPUs: model.CPUShare}, ""},
		{"exclusive, all of it", map[string]string{manager: "exclusive", placement: "pcpu-only", memory: "local"},
			model.PodAnnotations{CPUs: model.CPUExclusive, Placement: model.PlaceCores, LocalMemory: true}, ""},
		{
			"placements", map[string]string{
				manager: "exclusive", placement: "spread",
			}, model.PodAnnotations{CPUs: model.CPUExclusive, Placement: model.PlaceSpread}, "",
		},
		{"both", map[string]string{manager: "share", alias: "exclusive"}, model.PodAnnotations{CPUs: model.CPUShare},
			`BothSpellings qos.gocrane.io/cpu-manager "exclusive" waterline.io/cpu-manager: "share" is used; remove the other`},
		{"both the same", map[string]string{manager: "share", alias: "share"}, model.PodAnnotations{CPUs: model.CPUShare},
			`BothSpellings qos.gocrane.io/cpu-manager "share" waterline.io/cpu-manager: "share" is used; remove the other`},
		{"hint", map[string]string{manager: "share", hint: "4-5,8"},
			model.PodAnnotations{CPUs: model.CPUShare, Hint: model.CPUs(4, 5, 8)}, ""},
		{"bad hint does not spoil the rest", map[string]string{manager: "share", hint: "4-"},
			model.PodAnnotations{CPUs: model.CPUShare},
			`BadAnnotation waterline.io/cpuset-hint "4-" write a list of CPUs from 0 to 1023, such as 4-7,12, or remove it`},
		{"hint of no CPU", map[string]string{hint: " "}, model.PodAnnotations{},
			`BadAnnotation waterline.io/cpuset-hint " " write a list of CPUs from 0 to 1023, such as 4-7,12, or remove it`},
		{"hint of a CPU that no machine has", map[string]string{hint: "1024"}, model.PodAnnotations{},
			`BadAnnotation waterline.io/cpuset-hint "1024" write a list of CPUs from 0 to 1023, such as 4-7,12, or remove it`},
		{"bad alias", map[string]string{alias: "Exclusive"}, model.PodAnnotations{},
			`BadAnnotation qos.gocrane.io/cpu-manager "Exclusive" write "none" or "share" or "exclusive"`},
		{"bad placement does not spoil the rest", map[string]string{
			manager: "exclusive", placement: "", memory: "remote",
		}, model.PodAnnotations{CPUs: model.CPUExclusive},
			`BadAnnotation waterline.io/cpu-placement "" write "packed" or "spread" or "pcpu-only"; BadAnnotation waterline.io/cpu-memory "remote" write "local"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			parsed := ParseAnnotations(c.annotations)
			var notices []string
			for _, n := range parsed.Notices {
				notices = append(notices, fmt.Sprintf("%s %s %q %s", n.Code, n.Key, n.Text, n.Fix))
			}
			if parsed.CPUs != c.want.CPUs || parsed.Placement != c.want.Placement || parsed.LocalMemory != c.want.LocalMemory ||
				parsed.Hint != c.want.Hint ||
				strings.Join(notices, "; ") != c.notices {
				t.Errorf("got %+v, %q", parsed, notices)
			}
		})
	}
}

// TestRandomAnnotations reads ten thousand random values: each is an integer in range, or has no effect but one notice.
func TestRandomAnnotations(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const alphabet = "0123456789 -+.eExX_kKmMiI\x00\n\tö/…"
	letters := []rune(alphabet)
	for range 10000 {
		var value string
		switch r.IntN(3) {
		case 0:
			value = strconv.FormatInt(r.Int64()-r.Int64(), 10)
		case 1:
			value = fmt.Sprint(r.IntN(300000) - 10)
		default:
			for range r.IntN(30) {
				value += string(letters[r.IntN(len(letters))])
			}
		}
		parsed := ParseAnnotations(map[string]string{v1alpha1.AnnotationCPUShare: value})
		n, err := strconv.ParseInt(value, 10, 64)
		good := err == nil && n >= 2 && n <= 262144
		if good && (parsed.Shares != n || len(parsed.Notices) != 0) ||
			!good && (parsed.Shares != 0 || len(parsed.Notices) != 1) {
			t.Fatalf("%q: %+v", value, parsed)
		}
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add("10240", "unlimited")
	f.Add("-1", "")
	f.Fuzz(func(t *testing.T, share, quota string) {
		parsed := ParseAnnotations(
			map[string]string{v1alpha1.AnnotationCPUShareAlias: share, v1alpha1.AnnotationCPUQuota: quota},
		)
		if parsed.Shares != 0 && model.ClampShares(parsed.Shares) != parsed.Shares {
			t.Errorf("%q gives %d", share, parsed.Shares)
		}
	})
}

// TestShorten checks that a text fits into its limit, and that no character is cut in two.
func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"short", 5, "short"},
		{"longer", 5, "lo…"},
		{"ääää", 7, "ää…"},
		{"ääää", 6, "ä…"}, // three bytes and the ellipsis: the second character has no room
		{"longer", 1, "…"},
	} {
		if got := Shorten(c.text, c.most); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
