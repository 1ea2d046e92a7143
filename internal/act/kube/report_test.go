package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/model"
	observe "github.com/waterline-io/waterline/internal/observe/kube"
)

// TestOtherDays checks that a report has what other days used once that is known, and never more than the capacity.
func TestOtherDays(t *testing.T) {
	milli := func(v int64) resource.Quantity { return *resource.NewMilliQuantity(v, resource.DecimalSI) }
	a := model.Account{Capacity: 8000}
	if got := resourceReport(&a, &model.OtherDays{}, milli).OtherDays; got != nil {
		t.Errorf("nothing is known, and the report says %v", got)
	}
	got := resourceReport(&a, &model.OtherDays{FourHours: 2500, EightHours: 9000}, milli).OtherDays
	if got == nil || got.FourHours.String() != "2500m" || got.EightHours.String() != "8" {
		t.Errorf("%v", got)
	}
}

// TestBatchUse checks that a report has what batch uses, and not what it may use.
func TestBatchUse(t *testing.T) {
	a := model.Account{Capacity: 8000, Allow: 4000, Use: model.Use{Batch: 1500, Online: 700}}
	got := resourceReport(&a, &model.OtherDays{}, func(v int64) resource.Quantity {
		return *resource.NewMilliQuantity(v, resource.DecimalSI)
	})
	if got.Batch.String() != "1500m" || got.Online.String() != "700m" {
		t.Errorf("batch %s, online %s", got.Batch, got.Online.String())
	}
}

// TestThrottledCPU checks that a report has the CPU that batch could not use, and that the next one without it takes it
// away.
func TestThrottledCPU(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var patch struct{ Status map[string]any }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			t.Error(err)
		}
		value, written := patch.Status["throttledCPU"]
		got = append(got, fmt.Sprint(value, " ", written))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion": "waterline.io/v1alpha1", "kind": "NodeReport", "metadata": {"name": "n1"}}`)
	}))
	defer server.Close()
	client, err := observe.NewCustomClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	milli := int64(1500)
	for _, throttled := range []*int64{&milli, nil} {
		report := model.Report{Mode: model.ModeEnforce, Throttled: throttled}
		if err := NewReports(client, "n1").Write(t.Context(), "u1", report); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"1500m true", "<nil> true"}; !slices.Equal(got, want) {
		t.Errorf("the reports had %q, want %q", got, want)
	}
}
