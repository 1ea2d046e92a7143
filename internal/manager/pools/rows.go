package pools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool/crew"
)

const (
	// shownWorkers is the most workers in the status of a pool. The API server sends the status to everybody who watches
	// pools, and people read it.
	shownWorkers = 20
	// reportWorkers is about how many workers a report has. An object of the API may have a megabyte, and a worker takes
	// about 300 bytes, with a long message a kilobyte more.
	reportWorkers = 200
)

// shownOf returns what the status of a pool shows of a status with all workers: all of them if they are few, and
// otherwise those that need attention most. The reports of the pool have them all.
func shownOf(s *v1alpha1.WorkerPoolStatus) *v1alpha1.WorkerPoolStatus {
	c := *s
	if c.Reports = 0; len(c.Workers) <= shownWorkers {
		return &c
	}
	c.Reports, c.Workers = int32(len(s.Workers)/reportWorkers+1), nil
	for i := range s.Workers {
		if w := &s.Workers[i]; attention(w) > 0 {
			c.Workers = append(c.Workers, *w)
		}
	}
	slices.SortFunc(c.Workers, func(a, b v1alpha1.WorkerStatus) int {
		return cmp.Or(attention(&b)-attention(&a), a.Since.Compare(b.Since.Time), strings.Compare(a.Name, b.Name))
	})
	c.Workers = c.Workers[:min(len(c.Workers), shownWorkers)]
	slices.SortFunc(c.Workers, func(a, b v1alpha1.WorkerStatus) int { return strings.Compare(a.Name, b.Name) })
	return &c
}

// attention says how much a person should look at a worker: 0 for one that does what it is to do.
func attention(w *v1alpha1.WorkerStatus) int {
	switch phase := pool.Phase(w.Phase); {
	case phase == pool.Quarantined:
		return 4
	case phase == pool.Lost || w.Attempts > 0:
		return 3
	case phase == pool.Frozen:
		return 2
	case phase == pool.Active || phase == pool.Terminated || phase == crew.Stopped:
		return 0
	}
	return 1
}

// reportName is the name of the ConfigMap with one part of a pool's workers.
func reportName(p *v1alpha1.WorkerPool, i int) string { return fmt.Sprintf("%s-report-%d", p.Name, i) }

// writeReports brings the reports of a pool to a status with all workers. A worker is in the report that its name says,
// so a change of one worker changes one report.
func (k *keeper) writeReports(ctx context.Context, p *v1alpha1.WorkerPool, s *v1alpha1.WorkerPoolStatus, n int) error {
	parts := make([][]v1alpha1.WorkerStatus, max(n, len(k.reports)))
	for i := range parts {
		parts[i] = []v1alpha1.WorkerStatus{} // and stays so if the pool has fewer workers now
	}
	for _, w := range s.Workers {
		if n > 0 {
			sum := fnv.New32a()
			_, _ = sum.Write([]byte(w.Name)) // never fails
			i := sum.Sum32() % uint32(n)
			parts[i] = append(parts[i], w)
		}
	}
	for i, workers := range parts {
		content, err := json.Marshal(workers)
		if err != nil {
			return fmt.Errorf("encoding the workers: %w", err)
		}
		if i < len(k.reports) && k.reports[i] == string(content) {
			continue
		}
		err = k.apply(ctx, p, k.c.o.Core, "configmaps", configMap(p, reportName(p, i), v1alpha1.LabelPoolReport,
			map[string]string{v1alpha1.PoolReportKey: string(content)}))
		if err != nil {
			return err
		}
		if i == len(k.reports) {
			k.reports = append(k.reports, "")
		}
		k.reports[i] = string(content)
	}
	return nil
}

// readReports returns a status with all workers, as the manager before has written it.
func (k *keeper) readReports(ctx context.Context, p *v1alpha1.WorkerPool) (*v1alpha1.WorkerPoolStatus, error) {
	s := p.Status.DeepCopy()
	if k.reports = nil; s.Reports == 0 {
		return s, nil
	}
	all := map[string]v1alpha1.WorkerStatus{}
	for i := 0; ; i++ {
		var c corev1.ConfigMap
		name := reportName(p, i)
		err := k.c.o.Core.Get().Namespace(p.Namespace).Resource("configmaps").Name(name).Timeout(apiTimeout).Do(ctx).Into(&c)
		if apierrors.IsNotFound(err) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", p.Namespace, name, err)
		}
		var workers []v1alpha1.WorkerStatus
		if controls(p, &c.ObjectMeta) {
			// A report that cannot be read is written anew. Its workers are found by their pods.
			_ = json.Unmarshal([]byte(c.Data[v1alpha1.PoolReportKey]), &workers)
		}
		k.reports = append(k.reports, "") // it is compared with nothing, and so written once
		for _, w := range workers {
			if have, twice := all[w.Name]; !twice || have.Since.Before(&w.Since) {
				all[w.Name] = w
			}
		}
	}
	s.Workers = nil
	for _, name := range sortedKeys(all) {
		s.Workers = append(s.Workers, all[name])
	}
	return s, nil
}
