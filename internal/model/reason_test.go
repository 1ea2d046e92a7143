package model

import "testing"

// TestReasons checks that equal reasons are one, that others are not, and that no reason changes later.
func TestReasons(t *testing.T) {
	var all Reasons
	request := func(v int64) Operand { return Operand{Name: "request", Value: v, Unit: UnitMilli} }
	first := all.Of(BatchWeight, request(100))
	if all.Of(BatchWeight, request(100)) != first {
		t.Error("the same reason is another one")
	}
	for _, other := range []*Reason{
		all.Of(BatchQuota, request(100)), all.Of(BatchWeight, request(200)),
		all.Of(BatchWeight, Operand{Name: "limit", Value: 100, Unit: UnitMilli}),
		all.Of(BatchWeight, Operand{Name: "request", Value: 100, Unit: UnitShares}),
	} {
		if other == first {
			t.Errorf("%s is the same as another reason", other)
		}
	}
	for v := range int64(100) {
		want := Reason{Code: BatchWeight, Operands: []Operand{request(v)}}
		if got := all.Of(BatchWeight, request(v)); got.String() != want.String() {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if first.String() != "BatchWeight request=100mCPU" {
		t.Errorf("the first reason became %s", first)
	}
}
