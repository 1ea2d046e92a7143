package kube

import (
	"context"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/lab/sandbox"
)

// Wait calls check again and again until it is done. If that takes longer than atMost, the error has the last state
// that check returned.
func Wait(ctx context.Context, every, atMost time.Duration, check func() (state string, done bool, err error)) error {
	for begin := time.Now(); ; {
		state, done, err := check()
		if err != nil {
			return err
		}
		if done {
			return context.Cause(ctx)
		}
		if time.Since(begin) > atMost {
			return fmt.Errorf("not within %v: %s", atMost, state)
		}
		if err := sandbox.Sleep(ctx, every); err != nil {
			return err
		}
	}
}
