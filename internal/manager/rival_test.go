package manager

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRival checks which Leases are those of a manager that leads in another namespace. What a removed release left is
// held for ever and never renewed.
func TestRival(t *testing.T) {
	lease := func(namespace, holder, version string) coordinationv1.Lease {
		l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, ResourceVersion: version}}
		if holder != "nobody" {
			l.Spec.HolderIdentity = &holder
		}
		return l
	}
	for name, c := range map[string]struct {
		leases func(look int) []coordinationv1.Lease
		want   string
		looks  int
	}{
		"none": {func(int) []coordinationv1.Lease { return nil }, "", 1},
		"its own": {func(look int) []coordinationv1.Lease {
			return []coordinationv1.Lease{lease("own", "a", fmt.Sprint(look))}
		}, "", 1},
		"nobody leads there": {func(look int) []coordinationv1.Lease {
			return []coordinationv1.Lease{lease("a", "nobody", fmt.Sprint(look)), lease("b", "", fmt.Sprint(look))}
		}, "", 1},
		"left behind": {func(int) []coordinationv1.Lease {
			return []coordinationv1.Lease{lease("other", "a", "7")}
		}, "", 9},
		"another leads": {func(look int) []coordinationv1.Lease {
			return []coordinationv1.Lease{lease("left", "a", "7"), lease("other", "a", fmt.Sprint(look/3))}
		}, "other", 3},
		"another ends": {func(look int) []coordinationv1.Lease {
			return []coordinationv1.Lease{lease("other", map[bool]string{true: "a"}[look < 2], fmt.Sprint(look/2))}
		}, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				got, err := findRival(t.Context(), "own", func() ([]coordinationv1.Lease, error) {
					looks++
					return c.leases(looks), nil
				})
				if got != c.want || err != nil || looks != c.looks {
					t.Errorf("found %q after %d looks, %v, want %q after %d", got, looks, err, c.want, c.looks)
				}
			})
		})
	}
	broken := errors.New("forbidden")
	fails := func() ([]coordinationv1.Lease, error) { return nil, broken }
	if got, err := findRival(t.Context(), "own", fails); got != "" || !errors.Is(err, broken) {
		t.Errorf("found %q, %v", got, err)
	}
}
