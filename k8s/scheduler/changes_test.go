package scheduler

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestChangesDuringCycles schedules pods of all kinds while reports, agents and policies come and go, as informers
// bring them. All pods get nodes. What it is for is the race detector (make race).
func TestChangesDuringCycles(t *testing.T) {
	const nodes = 20
	c := newCycles(t, "waterline", nodes)
	stop := make(chan struct{})
	var changing sync.WaitGroup
	change := func(of func(i int)) {
		changing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Microsecond):
					of(i)
				}
			}
		})
	}
	name := func(i int) string { return fmt.Sprintf("node-%04d", i%nodes) }
	change(func(i int) { c.view.seeReport(nodeReport(name(i), reportOf(i%8))) })
	change(func(i int) { c.view.loseReport(name(7 * i)) })
	change(func(i int) { c.view.seePod(readyAgent(name(i))) })
	change(func(i int) { c.view.seePolicy(policy(t, i%2 == 0)) })
	change(func(i int) {
		p := testPod(fmt.Sprint("other-", i%50), name(i))
		p.Annotations = map[string]string{v1alpha1.AnnotationCPUShare: "1024"}
		c.view.seePod(p)
		c.view.losePod(p)
	})
	change(func(int) { c.view.count() })
	for i := range 60 {
		p := c.pod()
		switch request := p.Spec.Containers[0].Resources.Requests; i % 3 {
		case 1:
			request[v1alpha1.ResourceBatchCPU] = resource.MustParse("100")
		case 2:
			p.Annotations = map[string]string{v1alpha1.AnnotationCPUManager: "share"}
			request[corev1.ResourceCPU] = resource.MustParse("1")
		}
		c.cycle(p)
	}
	close(stop)
	changing.Wait()
	if got := len(c.assumed); got != 60 {
		t.Errorf("%d of 60 pods have nodes", got)
	}
}
