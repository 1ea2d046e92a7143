package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// firstSight notes the label with which the ResourceManager shows each NodeManager of a pool, each time that it comes.
type firstSight struct {
	part string // of the ids of the pool's NodeManagers, and of no others

	mu      sync.Mutex
	seen    map[string]string // by id: how the NodeManager was shown last
	starts  int
	wrong   []string
	changes []string // of what was shown
}

// seeStarts looks at all NodeManagers of a pool ten times a second until the test ends.
func seeStarts(t *testing.T, rm *yarn.RM, pool string) *firstSight {
	s := &firstSight{part: "." + pool + ".", seen: map[string]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			nodes, err := rm.Nodes(ctx)
			s.note(nodes, err)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("NodeManagers of the pool, whenever they changed:\n%s", strings.Join(s.changes, "\n"))
		}
	})
	return s
}

func (s *firstSight) note(nodes []yarn.Node, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change := func(text string) { s.changes = append(s.changes, time.Now().Format(time.StampMilli)+" "+text) }
	if err != nil {
		if s.seen["error"] == "" {
			s.seen["error"] = err.Error()
			change(err.Error())
		}
		if errors.Is(err, yarn.ErrNoActive) { // with the next one they all come again
			s.seen = map[string]string{"error": err.Error()}
		}
		return
	}
	delete(s.seen, "error")
	there := map[string]bool{}
	for _, n := range nodes {
		if !strings.Contains(n.ID, s.part) {
			continue
		}
		there[n.ID] = true
		before := s.seen[n.ID]
		now := fmt.Sprintf("%s %q %v", n.State, n.Labels, n.Total)
		if s.seen[n.ID] = now; now == before {
			continue
		}
		change(n.ID + " " + now)
		if n.State != yarn.NodeRunning {
			continue
		}
		if !strings.HasPrefix(before, string(yarn.NodeRunning)+" ") {
			s.starts++
		}
		if len(n.Labels) != 1 || n.Labels[0] != hadoop.Label {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: %+v", time.Now().Format(time.StampMilli), n))
		}
	}
	for id := range s.seen {
		if !there[id] && id != "error" {
			delete(s.seen, id)
			change(id + " is not there")
		}
	}
}

// check checks the label of all NodeManagers so far, of which there were at least so many.
func (s *firstSight) check(t *testing.T, least int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) > 0 || s.starts < least {
		t.Errorf("%d NodeManagers were seen to start, want %d; without the label: %q", s.starts, least, s.wrong)
	}
	t.Logf("%d NodeManagers started, all with the label", s.starts)
}
