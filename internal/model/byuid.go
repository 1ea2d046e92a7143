package model

import (
	"sort"
	"strings"
)

// IndexByUID returns the place of a pod's first element in a list that is ordered by the UIDs of pods, and whether
// there is one; if not, the place where it belongs. of returns the UID of an element.
func IndexByUID[T any](list []T, uid string, of func(*T) string) (int, bool) {
	return sort.Find(len(list), func(i int) int { return strings.Compare(uid, of(&list[i])) })
}

// FindByUID returns a pod's first element in a list that is ordered by the UIDs of pods; nil if there is none.
func FindByUID[T any](list []T, uid string, of func(*T) string) *T {
	if i, found := IndexByUID(list, uid, of); found {
		return &list[i]
	}
	return nil
}

// AllByUID returns a pod's elements in a list that is ordered by the UIDs of pods, as a part of the list.
func AllByUID[T any](list []T, uid string, of func(*T) string) []T {
	from, _ := IndexByUID(list, uid, of)
	to := from
	for to < len(list) && of(&list[to]) == uid {
		to++
	}
	return list[from:to:to]
}
