package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/docs"
)

type poolAnswer struct {
	Name      string                    `json:"name"`
	Namespace string                    `json:"namespace"`
	Engine    string                    `json:"engine"` // yarn, trino or impala
	Status    v1alpha1.WorkerPoolStatus `json:"status"`

	words meanings
}

func explainPool(ctx context.Context, a *apis, namespace, name string) (answer, error) {
	var pools v1alpha1.WorkerPoolList
	if err := list(ctx, a.custom, "workerpools", namespace, &pools); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pools.Items, func(p v1alpha1.WorkerPool) bool { return p.Name == name })
	if i < 0 {
		there := namesOf(pools.Items, func(p *v1alpha1.WorkerPool) string { return p.Name })
		return nil, fmt.Errorf("there is no pool %q in namespace %s; there are: %s", name, namespace,
			cmp.Or(strings.Join(there, ", "), "none"))
	}
	p := &pools.Items[i]
	if err := readWorkers(ctx, a, p); err != nil {
		return nil, err
	}
	return &poolAnswer{
		Name: name, Namespace: namespace, Engine: engineOf(p), Status: p.Status, words: poolMeanings(p),
	}, nil
}

// readWorkers completes the workers in the status of a pool from its reports.
func readWorkers(ctx context.Context, a *apis, p *v1alpha1.WorkerPool) error {
	if p.Status.Reports == 0 {
		return nil
	}
	p.Status.Workers = nil
	for i := range p.Status.Reports {
		var c corev1.ConfigMap
		name := fmt.Sprintf("%s-report-%d", p.Name, i)
		err := a.core.Get().Namespace(p.Namespace).Resource("configmaps").Name(name).Do(ctx).Into(&c)
		if err != nil {
			return fmt.Errorf("reading ConfigMap %s/%s, which has workers of the pool, takes the verb get on configmaps: %w",
				p.Namespace, name, err)
		}
		var workers []v1alpha1.WorkerStatus
		if err := json.Unmarshal([]byte(c.Data[v1alpha1.PoolReportKey]), &workers); err != nil {
			return fmt.Errorf("reading the workers in ConfigMap %s/%s: %w", p.Namespace, name, err)
		}
		p.Status.Workers = append(p.Status.Workers, workers...)
	}
	slices.SortFunc(p.Status.Workers, func(a, b v1alpha1.WorkerStatus) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func engineOf(p *v1alpha1.WorkerPool) string {
	switch {
	case p.Spec.Trino != nil:
		return "trino"
	case p.Spec.Impala != nil:
		return "impala"
	}
	return "yarn"
}

// poolMeanings returns the words for the phases and reasons of a pool's workers.
func poolMeanings(p *v1alpha1.WorkerPool) meanings {
	if p.Spec.YARN != nil {
		return docs.Meanings(docs.YARN)
	}
	return docs.Meanings(docs.OLAP)
}

func (p *poolAnswer) meanings() meanings { return p.words }

func (p *poolAnswer) print(out io.Writer) error {
	s := &p.Status
	fmt.Fprintf(out, "pool %s/%s  engine %s  workers wanted %d, active %d, leaving %d\n", p.Namespace, p.Name, p.Engine,
		s.Wanted, s.Active, s.Leaving)
	if p.Engine == "yarn" {
		fmt.Fprintf(out, "%s use %s and %d vcores of %s and %d vcores\n", count(int(s.Containers), "container"),
			s.Used.Memory.String(), s.Used.VCores, s.Total.Memory.String(), s.Total.VCores)
	}
	if s.Next != nil {
		fmt.Fprintf(out, "its windows change what is to run at %s\n", clock(s.Next.Time))
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(out, "%s is %s: %s %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	if len(s.Workers) == 0 {
		_, err := fmt.Fprintln(out, "none of its workers ever ran")
		return err
	}
	return table(out, "\nWORKER\tNODE\tPHASE\tSINCE\tCONTAINERS\tWHY", s.Workers, func(w *v1alpha1.WorkerStatus) string {
		why := strings.TrimSpace(w.Reason + " " + w.Message)
		if w.Until != nil {
			why += ", stops by " + clock(w.Until.Time)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s", w.Name, orDash(w.Node), w.Phase, w.Since.UTC().Format(time.RFC3339),
			w.Containers, why)
	})
}

func orDash(text string) string { return cmp.Or(text, "-") }
