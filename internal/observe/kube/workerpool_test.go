package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestWindowOfPool reads how a worker follows its node: 10 min unless the pool says otherwise, and an hour at most.
func TestWindowOfPool(t *testing.T) {
	for _, c := range []struct {
		follow *v1alpha1.FollowSpec
		want   time.Duration
		wrong  string
	}{
		{nil, 10 * time.Minute, ""},
		{&v1alpha1.FollowSpec{}, 10 * time.Minute, ""},
		{&v1alpha1.FollowSpec{Window: "0s"}, 0, ""},
		{&v1alpha1.FollowSpec{Window: "1h"}, time.Hour, ""},
		{&v1alpha1.FollowSpec{Window: "1h1s"}, 0, "spec.size.follow.window"},
		{&v1alpha1.FollowSpec{Window: "soon"}, 0, "spec.size.follow.window"},
	} {
		p := &v1alpha1.WorkerPool{}
		p.Spec.YARN = &v1alpha1.YARNSpec{}
		p.Spec.Size.Follow = c.follow
		read, err := ReadWorkerPool(p)
		switch {
		case c.wrong == "" && (err != nil || read.Window != c.want):
			t.Errorf("%+v: %s, %v; want %s", c.follow, read.Window, err, c.want)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%+v: %v, want an error of %s", c.follow, err, c.wrong)
		}
	}
}
