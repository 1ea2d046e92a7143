package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/internal/model"
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
