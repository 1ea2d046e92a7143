package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestByUID compares the searches with loops, on lists with several elements of one pod, and checks that they allocate
// nothing.
func TestByUID(t *testing.T) {
	of := func(u *InsideUsage) string { return u.UID }
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		list := make([]InsideUsage, r.IntN(12))
		for i := range list {
			list[i] = InsideUsage{UID: fmt.Sprint(r.IntN(10)), Name: fmt.Sprint(i)}
		}
		slices.SortStableFunc(list, func(a, b InsideUsage) int { return strings.Compare(a.UID, b.UID) })
		uid := fmt.Sprint(r.IntN(10))
		place, want := len(list), []InsideUsage(nil)
		for i := range list {
			if list[i].UID >= uid {
				place = min(place, i)
			}
			if list[i].UID == uid {
				want = append(want, list[i])
			}
		}
		i, found := IndexByUID(list, uid, of)
		if i != place || found != (len(want) > 0) {
			t.Fatalf("%s of %v: %d, %t", uid, list, i, found)
		}
		if all := AllByUID(list, uid, of); !slices.Equal(all, want) {
			t.Fatalf("%s of %v: %v", uid, list, all)
		}
		if u := FindByUID(list, uid, of); (u != nil) != found || u != nil && *u != want[0] {
			t.Fatalf("%s of %v: %v", uid, list, u)
		}
	}
	list := []InsideUsage{{UID: "a"}, {UID: "b"}}
	if n := testing.AllocsPerRun(100, func() { _, _ = FindByUID(list, "b", of), AllByUID(list, "a", of) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
