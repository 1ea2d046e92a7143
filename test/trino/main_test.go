// Package trino_test is level 6 of the test bed for Trino: the drainer of internal/drain/trino against a real
// coordinator, real workers and real queries. make test-trino builds what the tests need.
//
// The cluster is started once, with two workers.
package trino_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/drain/trino"
	bed "github.com/waterline-io/waterline/test/bed/trino"
	"github.com/waterline-io/waterline/test/bed/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

// grace is shutdown.grace-period of the workers. The coordinator looks at its workers every 5 s, and uses what the look
// before brought; and this machine may be busy.
const grace = 20 * time.Second

// The cluster and its drainer. They are set once, before any test.
var (
	cluster *bed.Bed
	drainer *trino.Drainer
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "trino:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	out, err := filepath.Abs("../../out")
	if err != nil {
		return 0, err
	}
	o := bed.Options{
		Out: filepath.Join(out, "trino"), Dir: filepath.Join(out, "trino/run"), Logs: filepath.Join(out, "test/log/trino"),
		Heap: 1024,
	}
	if inside, code, err := yarn.Enter(o.Dir, nil); !inside || err != nil {
		return code, err
	}
	start := time.Now()
	if cluster, err = bed.Up(o); err != nil {
		return 0, err
	}
	for i := 1; i <= 2; i++ {
		if err := startWorker(i); err != nil {
			return 0, err
		}
	}
	if drainer, err = trino.New(bed.Coordinator, drain.Auth{User: bed.User}); err != nil {
		return 0, err
	}
	if err := errors.Join(active(1), active(2)); err != nil {
		return 0, errors.Join(err, errors.New(cluster.LogTails()))
	}
	fmt.Printf("Trino is up with 2 workers after %.1f s\n", time.Since(start).Seconds())
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, cluster.LogTails())
	}
	return code, nil
}

func startWorker(i int) error {
	return cluster.StartWorker(i, map[string]string{"shutdown.grace-period": grace.String()}, bed.Rules)
}

// active waits until the coordinator uses a worker.
func active(i int) error {
	var s drain.Status
	var err error
	once := func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s, err = drainer.Status(ctx, bed.Worker(i))
		return err == nil && s.State == drain.Active
	}
	if !poll.Until(10*time.Minute, 100*time.Millisecond, once) { // a worker starts slowly on a busy machine
		return fmt.Errorf("worker %d is %+v: %w", i, s, err)
	}
	return nil
}
