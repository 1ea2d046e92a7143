package measure

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

func TestQuantile(t *testing.T) {
	values := make([]float64, 200)
	for i := range values {
		values[i] = float64(i + 1)
	}
	for q, want := range map[float64]float64{0.5: 100, 0.99: 198, 1: 200} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, not %v", q, got, want)
		}
	}
	if got := Quantile(nil, 0.99); got != 0 {
		t.Errorf("without values: %v", got)
	}
}

func TestMedian(t *testing.T) {
	if got := Median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("of three: %v", got)
	}
	if got := Median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("of four: %v", got)
	}
}

func TestParseMachineCPU(t *testing.T) {
	before, err := parseMachineCPU([]byte("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseMachineCPU([]byte("cpu  150 0 100 720 100 0 0 30 0 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := after.stealSince(before); got != 30 {
		t.Errorf("steal is %v %%", got)
	}
	if got := before.stealSince(before); got != 0 {
		t.Errorf("steal in no time is %v %%", got)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		if _, err := parseMachineCPU([]byte(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestParsePlace(t *testing.T) {
	const status = "Name:\tsh\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\nMems_allowed_list:\t0\n"
	stat := "7 (a) b (c) R 1" + strings.Repeat(" 0", 34) + " 1 0 0"
	got, err := parsePlace(status, stat)
	if err != nil || got.Allowed != model.CPUs(0, 1) || got.Last != model.CPUs(1) || !got.Running {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][2]string{
		{status, "7 (sh) S 1 2"}, {"Cpus_allowed_list:\tx\n", stat}, {status, "7 (sh) S" + strings.Repeat(" x", 40)},
	} {
		if _, err := parsePlace(bad[0], bad[1]); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// TestUpperRatio compares with the bound by hand: logarithms 0, 0.1 and 0.2 have the mean 0.1 and the standard error
// 0.1/√3, and t is 2.920.
func TestUpperRatio(t *testing.T) {
	got, known := UpperRatio([]float64{1, math.Exp(0.1), math.Exp(0.2)})
	if want := math.Exp(0.1 + 2.920*0.1/math.Sqrt(3)); !known || math.Abs(got-want) > 1e-9 {
		t.Errorf("%v, %v, want %v", got, known, want)
	}
	if _, known := UpperRatio([]float64{2}); known {
		t.Error("known of one")
	}
	many := slices.Repeat([]float64{3}, 100)
	if got, _ := UpperRatio(many); math.Abs(got-3) > 1e-9 {
		t.Errorf("%v of 100 alike", got)
	}
}
