package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/yarn"
)

const guardContainer = "guard"

// workerAnswer is what is known about a worker and the containers that its guard told to leave.
type workerAnswer struct {
	Name      string                 `json:"name"`
	Namespace string                 `json:"namespace"`
	Node      string                 `json:"node,omitempty"`
	Pool      string                 `json:"pool,omitempty"`
	State     *v1alpha1.WorkerStatus `json:"state,omitempty"`     // as its pool has it
	Phase     string                 `json:"phase"`               // of the pod; "": there is none
	Allowance string                 `json:"allowance,omitempty"` // as the annotation has it
	Marks     pool.Marks             `json:"marks"`
	Records   []guardlog.Record      `json:"records"`        // oldest first
	Gone      []guardlog.Gone        `json:"gone,omitempty"` // its earlier pods, the last one first

	guarded bool
	words   meanings
}

// explainWorker reads a worker's pool, its pod and the log of its guard. A worker may have no pod now.
func explainWorker(ctx context.Context, a *apis, namespace, name string) (answer, error) {
	var pools v1alpha1.WorkerPoolList
	if err := list(ctx, a.custom, "workerpools", namespace, &pools); err != nil {
		return nil, err
	}
	w := &workerAnswer{Name: name, Namespace: namespace, words: meanings{}}
	var pod corev1.Pod
	err := a.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(&pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("looking up the worker's pod: %w", err)
	}
	if err == nil {
		if err := w.readPod(&pod); err != nil {
			return nil, err
		}
	}
	for i := range pools.Items {
		if err := readWorkers(ctx, a, &pools.Items[i]); err != nil {
			return nil, err
		}
		w.readState(&pools.Items[i])
	}
	var unread error
	for i := range pools.Items {
		unread = errors.Join(unread, w.readGone(ctx, a, &pools.Items[i]))
	}
	if w.Pool == "" && unread != nil {
		return nil, unread
	}
	if w.Pool == "" {
		return nil, fmt.Errorf("no pool in namespace %s has a worker %q, or had one whose guard told of containers that "+
			"left, and there is no such pod", namespace, name)
	}
	if w.guarded {
		before, _ := guardLog(ctx, a.core, namespace, name, true) // most were never started again
		now, err := guardLog(ctx, a.core, namespace, name, false)
		w.Records, unread = append(before, now...), errors.Join(err, unread)
	}
	return w, unread
}

func (w *workerAnswer) readState(p *v1alpha1.WorkerPool) {
	for i := range p.Status.Workers {
		if state := &p.Status.Workers[i]; state.Name == w.Name {
			w.State, w.Pool, w.words, w.Node = state, p.Name, poolMeanings(p), cmp.Or(w.Node, state.Node)
		}
	}
}

func (w *workerAnswer) readPod(pod *corev1.Pod) error {
	w.Node, w.Pool = pod.Spec.NodeName, pod.Labels[v1alpha1.LabelPool]
	w.Phase, w.Allowance = string(pod.Status.Phase), pod.Annotations[v1alpha1.AnnotationPoolAllowance]
	if w.Pool == "" {
		return fmt.Errorf("pod %s/%s is no worker of a pool: it has no label %s", pod.Namespace, pod.Name,
			v1alpha1.LabelPool)
	}
	if text := pod.Annotations[v1alpha1.AnnotationPoolMarks]; text != "" {
		if err := json.Unmarshal([]byte(text), &w.Marks); err != nil {
			return fmt.Errorf("annotation %s of pod %s/%s: %w", v1alpha1.AnnotationPoolMarks, pod.Namespace, pod.Name, err)
		}
	}
	w.guarded = slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == guardContainer
	})
	return nil
}

// readGone reads what is known of the worker's earlier pods in a pool.
func (w *workerAnswer) readGone(ctx context.Context, a *apis, p *v1alpha1.WorkerPool) error {
	var c corev1.ConfigMap
	part := guardlog.GonePart(p.Name, w.Name)
	err := a.core.Get().Namespace(p.Namespace).Resource("configmaps").Name(part).Do(ctx).Into(&c)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(&c, p) {
		return nil // no pod of these workers has gone, or the name is taken
	}
	if err != nil {
		return fmt.Errorf("reading ConfigMap %s/%s, which has earlier pods of the worker, takes the verb get on "+
			"configmaps: %w", p.Namespace, part, err)
	}
	for _, g := range guardlog.ReadGone(c.Data[v1alpha1.PoolGoneKey]) {
		if g.Worker == w.Name {
			w.Gone, w.Pool, w.words = append(w.Gone, g), cmp.Or(w.Pool, p.Name), poolMeanings(p)
		}
	}
	return nil
}

// guardLog returns the records in the log of a guard; with previous, of the container before its last restart.
func guardLog(
	ctx context.Context, client rest.Interface, namespace, name string, previous bool,
) ([]guardlog.Record, error) {
	log, err := client.Get().Namespace(namespace).Resource("pods").Name(name).SubResource("log").
		Param("container", guardContainer).Param("previous", strconv.FormatBool(previous)).Stream(ctx)
	if err != nil {
		if apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("reading the guard's log takes the verb get on pods/log in namespace %s: %w", namespace, err)
		}
		return nil, fmt.Errorf("reading the guard's log: %w", err)
	}
	defer log.Close()
	return readRecords(log)
}

// readRecords reads the records of a guard's log. Other lines are errors of the guard.
func readRecords(log io.Reader) ([]guardlog.Record, error) {
	var all []guardlog.Record
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r guardlog.Record
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Container != "" {
			all = append(all, r)
		}
	}
	if err := lines.Err(); err != nil {
		return all, fmt.Errorf("reading the guard's log: %w", err)
	}
	return all, nil
}

// meanings implements [answer]: of the guard's reasons, and of the pool's, which may have the same names.
func (w *workerAnswer) meanings() meanings {
	all := reasons()
	maps.Copy(all, w.words)
	return all
}

// print implements [answer]: a worker, and container by container what its guard did, in the order of the first
// signals.
func (w *workerAnswer) print(out io.Writer) error {
	fmt.Fprintf(out, "worker %s/%s of pool %s on node %s: %s\n", w.Namespace, w.Name, w.Pool,
		cmp.Or(w.Node, "(none)"), cmp.Or(w.Phase, "no pod"))
	if s := w.State; s != nil {
		fmt.Fprintf(out, "%s since %s: %s\n", s.Phase, clock(s.Since.Time), strings.TrimSpace(s.Reason+" "+s.Message))
	}
	if w.Allowance != "" {
		fmt.Fprintf(out, "its containers may use %s\n", w.Allowance)
	}
	if m := &w.Marks; !m.Until.IsZero() {
		fmt.Fprintf(out, "it shrinks to %s; the ResourceManager kills what does not fit at %s\n", m.Into, clock(m.Until))
	}
	if m := &w.Marks; !m.Leaving.IsZero() {
		fmt.Fprintf(out, "it has to stop since %s\n", clock(m.Leaving))
	}
	switch {
	case w.Phase == "":
	case !w.guarded:
		fmt.Fprintln(out, "it has no guard, so only its engine ends containers; see docs/guard.md")
	case len(w.Records) == 0:
		fmt.Fprintln(out, "no container had to leave")
	}
	printLeavers(out, w.Records)
	for _, g := range w.Gone {
		fmt.Fprintf(out, "\nan earlier pod, on node %s, was gone at %s", cmp.Or(g.Node, "(none)"), clock(g.At))
		if g.Phase != "" {
			fmt.Fprintf(out, "; before, it was %s", g.Phase+": "+g.Reason)
		}
		fmt.Fprintln(out, "\nthese left it, by the last message of its guard, which containers of that pod can forge:")
		all := slices.Clone(g.Containers)
		slices.Reverse(all)
		printLeavers(out, all)
	}
	return nil
}

// printLeavers shows what became of containers, in the order of the first records of each.
func printLeavers(out io.Writer, records []guardlog.Record) {
	var order []string
	of := map[string][]guardlog.Record{}
	for _, r := range records {
		if of[r.Container] == nil {
			order = append(order, r.Container)
		}
		of[r.Container] = append(of[r.Container], r)
	}
	for _, id := range order {
		printLeaver(out, id, of[id])
	}
}

// printLeaver shows the signals that one container got, and its end.
func printLeaver(out io.Writer, id string, records []guardlog.Record) {
	first := &records[0]
	what := ""
	if first.Master {
		what = ", its master"
	}
	fmt.Fprintf(out, "\n%s of %s%s, user %s\n", id, cmp.Or(first.Application, guardlog.Application(id), "no application"),
		what, cmp.Or(first.User, "unknown"))
	shown := map[guardlog.Try]bool{} // signals that have a record of their own, or are in the one before
	sent := func(t guardlog.Try) guardlog.Try {
		return guardlog.Try{At: t.At.UTC().Truncate(time.Second), Signal: t.Signal}
	}
	for _, r := range records {
		for _, t := range r.Tried {
			if !shown[sent(t)] {
				fmt.Fprintf(out, "  %s\n", strings.TrimSpace(clock(t.At)+"  SIG"+t.Signal+" "+t.Reason))
			}
			shown[sent(t)] = true
		}
		shown[sent(guardlog.Try{At: r.At, Signal: r.Signal})] = true
		switch {
		case r.Signal == "" && !r.Left && !r.Asked: // its signals are all that is known
		case r.Left:
			fmt.Fprintf(out, "  %s  left%s\n", clock(r.At), leaving(&r))
		case r.Asked && r.Signal != "":
			fmt.Fprintf(out, "  %s  SIG%s by way of the ResourceManager: %s %s\n", clock(r.At), r.Signal, r.Reason, r.Why)
		case r.Asked:
			fmt.Fprintf(out, "  %s  the ResourceManager refused: %s\n", clock(r.At), r.Error)
		case r.Error != "" && r.Processes == 0:
			fmt.Fprintf(out, "  %s  SIG%s failed: %s\n", clock(r.At), r.Signal, r.Error)
		default:
			fmt.Fprintf(out, "  %s  SIG%s to %d processes: %s %s\n", clock(r.At), r.Signal, r.Processes, r.Reason, r.Why)
		}
	}
}

// leaving says by whom a container was ended that left, and what its worker might use then.
func leaving(r *guardlog.Record) string {
	var text string
	if r.WithWorker {
		return " with its worker, whose pod ended"
	}
	switch r.Exit {
	case 0:
	case yarn.ExitByRM:
		text = ", ended by the ResourceManager"
	case yarn.ExitPreempted:
		text = ", preempted by the ResourceManager"
	case yarn.ExitAborted:
		text = ", aborted"
	case yarn.ExitMemory, yarn.ExitVirtualMemory:
		text = ", ended by the NodeManager, because it used more memory than it had asked for"
	case yarn.ExitByScheduler:
		text = ", ended by the NodeManager to make room for guaranteed containers"
	default:
		text = fmt.Sprintf(", exit code %d", r.Exit)
	}
	if a := r.Allowed; a != nil {
		text += fmt.Sprintf(", while containers might use %d MiB and %d vcores", a.MemoryMiB, a.VCores)
		if !a.Until.IsZero() {
			text += " from " + clock(a.Until) + " on"
		}
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

// clock returns a time as people read it, to the second.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
