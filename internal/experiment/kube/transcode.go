// Package kube runs experiments on the node of a cluster, with pods. What is made of their figures is in package
// experiment.
package kube

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/experiment"
	"github.com/waterline-io/waterline/internal/model"
)

// Config says where and how [Transcode] runs. Of the zero value's fields, Cluster, Client and Weight must be set.
type Config struct {
	Cluster   *rest.Config
	Client    rest.Interface // to it, of the core API group
	Node      string         // to run on; "": the only one that takes pods
	Namespace string         // to run in; "": one of its own, which is deleted in the end
	Image     string         // with ffmpeg, libx264 and a shell; "": DefaultImage
	Seconds   int            // of media in each job; 0: experiment.TranscodeSeconds
	Jobs      int            // an even number; 0: so many that they want four times as much CPU as the node has

	// Weight asks the agent on the node what a pod weighs in the kernel.
	Weight   func(ctx context.Context, namespace, pod string) (Weight, error)
	Progress func(experiment.Progress) // is told how far the experiment is; nil: nobody is
}

// Weight is what an agent knows of a pod's weight.
type Weight struct {
	Shares int64  // that the kernel holds; 0: the agent gives the pod none
	Why    string // the agent's reason
}

// DefaultImage is that of the test bed.
const DefaultImage = "wl.test/ffmpeg:1"

const (
	preparing = 10 * time.Minute // the longest from the pods' creation until all are ready, with an image to pull
	placing   = 20 * time.Second // the longest that the scheduler may find no place
	weighing  = 30 * time.Second // the longest until the agent has given the pods their weights
	ending    = 30 * time.Second // the longest that cleaning up may take
	// From the decision when to start to the start: jobs look at their clocks for one second of it, the rest is for telling
	// them. One takes a tenth of a second.
	lead, leadPerJob = 5 * time.Second, 300 * time.Millisecond
)

// transcode is one run.
type transcode struct {
	cfg       Config
	node      *corev1.Node
	threads   int
	namespace string
	own       bool     // the namespace is ours
	made      bool     // something may be there to delete
	weighted  []string // names of pods
	plain     []string
}

// Transcode runs real ffmpeg jobs as pods on one node, half of them annotated with the greatest weight, and compares how
// long they take. All begin at the same second. It deletes what it made, also when the context ends.
func Transcode(ctx context.Context, cfg Config) (r experiment.Result, err error) {
	t := &transcode{cfg: cfg}
	if err := t.plan(ctx); err != nil {
		return r, err
	}
	when := time.Now().UTC().Truncate(time.Second)
	defer func() { err = errors.Join(err, t.clean(context.WithoutCancel(ctx))) }()
	if err := t.create(ctx); err != nil {
		return r, err
	}
	if err := t.ready(ctx); err != nil {
		return r, err
	}
	weight, err := t.weigh(ctx)
	if err != nil {
		return r, err
	}
	if err := t.start(ctx); err != nil {
		return r, err
	}
	jobs, err := t.finish(ctx)
	if err != nil {
		return r, err
	}
	run := experiment.Transcodes{
		When: when, Machine: describeNode(t.node), CPUs: cpus(t.node), Seconds: t.cfg.Seconds, Threads: t.threads,
		Shares: model.MilliCPUToShares(requestMilli), Jobs: jobs, Seen: weight.Shares, Unseen: weight.Why,
	}
	return run.Result(), nil
}

func cpus(n *corev1.Node) float64 { return float64(n.Status.Allocatable.Cpu().MilliValue()) / 1000 }

// plan fills in what was not said and names everything that will be made.
func (t *transcode) plan(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := t.cfg.Client.Get().Resource("nodes").Do(ctx).Into(&nodes); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	node, err := chooseNode(nodes.Items, t.cfg.Node)
	if err != nil {
		return err
	}
	t.node = node
	threads, jobs := size(cpus(node))
	t.threads = threads
	if t.cfg.Jobs == 0 {
		t.cfg.Jobs = jobs
	}
	if t.cfg.Seconds == 0 {
		t.cfg.Seconds = experiment.TranscodeSeconds
	}
	if t.cfg.Image == "" {
		t.cfg.Image = DefaultImage
	}
	run := "transcode-" + strings.ToLower(rand.Text()[:6])
	t.namespace, t.own = t.cfg.Namespace, t.cfg.Namespace == ""
	if t.own {
		t.namespace = "waterline-" + run
	}
	for i := range t.cfg.Jobs / 2 {
		t.weighted = append(t.weighted, fmt.Sprintf("%s-weighted-%d", run, i+1))
		t.plain = append(t.plain, fmt.Sprintf("%s-plain-%d", run, i+1))
	}
	return nil
}

func (t *transcode) pods() []string { return slices.Concat(t.weighted, t.plain) }

// create makes the pods, and their namespace if none was given.
func (t *transcode) create(ctx context.Context) error {
	t.tell(experiment.Progress{Doing: fmt.Sprintf("preparing %d jobs on node %s, in namespace %s", t.cfg.Jobs, t.node.Name, t.namespace)})
	t.made = true
	if t.own {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace, Labels: labels()}}
		if err := t.cfg.Client.Post().Resource("namespaces").Body(namespace).Do(ctx).Error(); err != nil {
			t.made = ctx.Err() != nil // then nobody knows
			return fmt.Errorf("making a namespace; --namespace names one that is there: %w", err)
		}
		// Before it has its service account, pods are refused.
		err := wait(ctx, 50*time.Millisecond, ending, func() (string, bool, error) {
			err := t.cfg.Client.Get().Namespace(t.namespace).Resource("serviceaccounts").Name("default").Do(ctx).Error()
			return fmt.Sprintf("namespace %s has no service account: %v", t.namespace, err), !apierrors.IsNotFound(err), nil
		})
		if err != nil {
			return err
		}
	}
	for i, name := range t.pods() {
		if err := t.cfg.Client.Post().Namespace(t.namespace).Resource("pods").Body(t.job(name, i < len(t.weighted))).Do(ctx).Error(); err != nil {
			return fmt.Errorf("making pod %s in namespace %s: %w", name, t.namespace, err)
		}
	}
	return nil
}

// clean deletes what was made. A namespace goes with all that is in it.
func (t *transcode) clean(ctx context.Context) error {
	if !t.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ending)
	defer cancel()
	if t.own {
		err := t.cfg.Client.Delete().Resource("namespaces").Name(t.namespace).Do(ctx).Error()
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("deleting namespace %s, which must be done by hand: %w", t.namespace, err)
	}
	var errs []error
	for _, name := range t.pods() {
		err := t.cfg.Client.Delete().Namespace(t.namespace).Resource("pods").Name(name).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting pod %s in namespace %s, which must be done by hand: %w", name, t.namespace, err))
		}
	}
	return errors.Join(errs...)
}

// list returns our pods, or the trouble that one of them is in.
func (t *transcode) list(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	selector := v1alpha1.LabelExperiment + "=" + experiment.TranscodeName
	if err := t.cfg.Client.Get().Namespace(t.namespace).Resource("pods").Param("labelSelector", selector).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("looking at the pods: %w", err)
	}
	names := t.pods()
	ours := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !slices.Contains(names, p.Name) })
	if len(ours) < len(names) {
		return nil, fmt.Errorf("%d of our %d pods in namespace %s were deleted by somebody else", len(names)-len(ours), len(names), t.namespace)
	}
	for i := range ours {
		if err := trouble(&ours[i]); err != nil {
			return nil, err
		}
	}
	return ours, nil
}

// ready waits until every job waits for the start.
func (t *transcode) ready(ctx context.Context) error {
	begin := time.Now()
	return wait(ctx, 250*time.Millisecond, preparing, func() (string, bool, error) {
		pods, err := t.list(ctx)
		if err != nil {
			return "", false, err
		}
		for i := range pods {
			p := &pods[i]
			if running(p) {
				continue
			}
			if p.Spec.NodeName == "" && time.Since(begin) > placing {
				return "", false, fmt.Errorf("pod %s cannot run on node %s: %s", p.Name, t.node.Name, pending(p))
			}
			return fmt.Sprintf("pod %s is not ready: %s", p.Name, pending(p)), false, nil
		}
		return "", true, nil
	})
}

// weigh returns what the kernel holds for each weighted pod, the least of it, giving the agent some time to make that right.
// That nobody can say what it is is no error: the result tells.
func (t *transcode) weigh(ctx context.Context) (Weight, error) {
	t.tell(experiment.Progress{Doing: "asking the agent for the weights"})
	for begin := time.Now(); ; {
		least := Weight{Shares: experiment.TranscodeShares}
		for _, name := range t.weighted {
			w, err := t.cfg.Weight(ctx, t.namespace, name)
			if err != nil {
				return Weight{Why: err.Error()}, context.Cause(ctx)
			}
			if w.Shares < least.Shares {
				least = w
			}
		}
		if least.Shares == experiment.TranscodeShares || time.Since(begin) > weighing {
			return least, nil
		}
		if err := experiment.Sleep(ctx, 250*time.Millisecond); err != nil {
			return Weight{}, err
		}
	}
}

// start tells every job when to begin, by the node's clock, which may be another than ours.
func (t *transcode) start(ctx context.Context) error {
	out, err := t.exec(ctx, t.weighted[0], "date +%s")
	if err != nil {
		return err
	}
	now, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	if err != nil {
		return fmt.Errorf("asking for the node's time: %w", err)
	}
	at := time.Unix(now, 0).Add(lead + time.Duration(t.cfg.Jobs)*leadPerJob)
	for _, name := range t.pods() {
		// In one step, so that a job does not read half of it.
		if _, err := t.exec(ctx, name, fmt.Sprintf("echo %d >start.new && mv start.new start", at.Unix())); err != nil {
			return err
		}
	}
	return nil
}

// finish waits until every job has ended, and reads their reports.
func (t *transcode) finish(ctx context.Context) (jobs []experiment.TranscodeJob, err error) {
	begin := time.Now()
	for {
		pods, err := t.list(ctx)
		if err != nil {
			return nil, err
		}
		jobs = nil
		for i := range pods {
			if _, done := ended(&pods[i]); !done {
				continue
			}
			job, err := t.read(&pods[i])
			if err != nil {
				return nil, err
			}
			jobs = append(jobs, job)
		}
		if len(jobs) == len(pods) {
			return jobs, nil
		}
		t.tell(experiment.Progress{Doing: "transcoding", Now: fmt.Sprintf("%d of %d done, %.0f s", len(jobs), len(pods), time.Since(begin).Seconds())})
		if err := experiment.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// read reads the report of a pod whose job has ended well, and checks that it did what the others did.
func (t *transcode) read(p *corev1.Pod) (experiment.TranscodeJob, error) {
	state, _ := ended(p)
	report, err := parseReport(state.Message)
	if err != nil {
		return experiment.TranscodeJob{}, fmt.Errorf("pod %s: %w", p.Name, err)
	}
	if want := int64(t.cfg.Seconds) * framesPerSecond; report.frames != want {
		return experiment.TranscodeJob{}, fmt.Errorf("pod %s transcoded %d frames instead of %d", p.Name, report.frames, want)
	}
	return experiment.TranscodeJob{Name: p.Name, Weighted: slices.Contains(t.weighted, p.Name), Took: report.took, CPU: report.cpu}, nil
}

// wait asks again and again until something is so. The last answer to what is not so is told when it takes too long.
func wait(ctx context.Context, every, atMost time.Duration, ask func() (notYet string, done bool, err error)) error {
	for begin := time.Now(); ; {
		notYet, done, err := ask()
		if err != nil {
			return err
		}
		if done {
			return context.Cause(ctx)
		}
		if time.Since(begin) > atMost {
			return fmt.Errorf("not within %v: %s", atMost, notYet)
		}
		if err := experiment.Sleep(ctx, every); err != nil {
			return err
		}
	}
}

func (t *transcode) tell(p experiment.Progress) {
	if t.cfg.Progress != nil {
		p.Experiment = experiment.TranscodeName
		t.cfg.Progress(p)
	}
}
