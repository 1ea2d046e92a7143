// Package transcode runs real ffmpeg jobs on a node of a cluster, half of them with the greatest weight, and compares
// how long they take.
package transcode

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
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/kube"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// The experiment.
const (
	Name  = "transcode"
	About = "Real ffmpeg jobs begin together on a node of a cluster, half of them annotated 262144: these " +
		"take less time."
	DefaultSeconds = 20                 // of media in each job
	DefaultImage   = "wl.test/ffmpeg:1" // of the test bed
	imageNeeds     = "ffmpeg, libx264 and a shell"
	weightedShares = model.MaxShares // annotation of half of the jobs
)

// Config says where and how the experiment runs. Cluster, Client and Weight must be set.
type Config struct {
	Cluster   *rest.Config
	Client    rest.Interface // to it, of the core API group
	Node      string         // to run on; "": the only one that takes pods
	Namespace string         // to run in; "": a new one, which is deleted in the end
	Image     string         // with ffmpeg, libx264 and a shell; "": DefaultImage
	Seconds   int            // of media in each job; 0: DefaultSeconds
	Jobs      int            // an even number; 0: so many that they want four times as much CPU as the node has

	// Weight returns the weight of a pod that the agent on its node reads from the kernel.
	Weight   func(ctx context.Context, namespace, pod string) (Weight, error)
	Progress func(progress.Step) // receives how far the experiment is; nil: unused
}

// Weight is what an agent reports of a pod's weight.
type Weight struct {
	Shares int64  // that the kernel holds; 0: the agent gives the pod none
	Why    string // the agent's reason
}

const (
	readyTimeout  = 10 * time.Minute // from the pods' creation until all are ready, with an image to pull
	placeTimeout  = 20 * time.Second // for the scheduler to find a node
	weightTimeout = 30 * time.Second // until the agent has given the pods their weights
	cleanTimeout  = 30 * time.Second
	// lead and leadPerJob are the time from choosing the start until it. Jobs look at their clocks for one second of
	// it. The rest is for sending the start to each job, which takes a tenth of a second.
	lead, leadPerJob = 5 * time.Second, 300 * time.Millisecond
)

// transcoding is one run.
type transcoding struct {
	cfg       Config
	node      *corev1.Node
	threads   int
	namespace string
	own       bool     // the namespace is deleted in the end
	made      bool     // something may be there to delete
	weighted  []string // names of pods
	plain     []string
}

// Run runs the jobs as pods on one node. All begin at the same second. It deletes what it made, also when the context
// ends.
func Run(ctx context.Context, cfg Config) (r report.Result, err error) {
	t := &transcoding{cfg: cfg}
	if err := t.plan(ctx); err != nil {
		return r, err
	}
	r = report.Begin(Name, About)
	r.Machine = kube.DescribeNode(t.node)
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
	found := outcome{
		cpus: cpus(t.node), seconds: t.cfg.Seconds, threads: t.threads, shares: model.MilliCPUToShares(requestMilli),
		jobs: jobs,
		seen: weight.Shares, unseen: weight.Why,
	}
	found.report(&r)
	return r, nil
}

func cpus(n *corev1.Node) float64 { return float64(n.Status.Allocatable.Cpu().MilliValue()) / 1000 }

// plan fills in the defaults and names everything that will be made.
func (t *transcoding) plan(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := t.cfg.Client.Get().Resource("nodes").Do(ctx).Into(&nodes); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	node, err := kube.ChooseNode(nodes.Items, t.cfg.Node)
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
		t.cfg.Seconds = DefaultSeconds
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

func (t *transcoding) pods() []string { return slices.Concat(t.weighted, t.plain) }

// create makes the pods, and their namespace if none was named.
func (t *transcoding) create(ctx context.Context) error {
	t.report(progress.Step{
		Doing: fmt.Sprintf("preparing %d jobs on node %s, in namespace %s", t.cfg.Jobs, t.node.Name, t.namespace),
	})
	t.made = true
	if t.own {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace, Labels: labels()}}
		if err := t.cfg.Client.Post().Resource("namespaces").Body(namespace).Do(ctx).Error(); err != nil {
			t.made = ctx.Err() != nil // then it may have been made all the same
			return fmt.Errorf("making a namespace; --namespace names an existing one: %w", err)
		}
		// Before the namespace has its service account, pods are refused.
		err := kube.Wait(ctx, 50*time.Millisecond, cleanTimeout, func() (string, bool, error) {
			err := t.cfg.Client.Get().Namespace(t.namespace).Resource("serviceaccounts").Name("default").Do(ctx).Error()
			state := fmt.Sprintf("namespace %s has no service account: %v", t.namespace, err)
			return state, !apierrors.IsNotFound(err), nil
		})
		if err != nil {
			return err
		}
	}
	for i, name := range t.pods() {
		pod := t.job(name, i < len(t.weighted))
		if err := t.cfg.Client.Post().Namespace(t.namespace).Resource("pods").Body(pod).Do(ctx).Error(); err != nil {
			return fmt.Errorf("making pod %s in namespace %s: %w", name, t.namespace, err)
		}
	}
	return nil
}

// clean deletes what was made. A namespace is deleted with everything in it.
func (t *transcoding) clean(ctx context.Context) error {
	if !t.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
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
			errs = append(errs, fmt.Errorf("deleting pod %s in namespace %s, which must be done by hand: %w",
				name, t.namespace, err))
		}
	}
	return errors.Join(errs...)
}

// list returns the pods of this run, or the trouble that one of them has.
func (t *transcoding) list(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := t.cfg.Client.Get().Namespace(t.namespace).Resource("pods").
		Param("labelSelector", v1alpha1.LabelExperiment+"="+Name).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("listing the pods: %w", err)
	}
	names := t.pods()
	ours := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !slices.Contains(names, p.Name) })
	if len(ours) < len(names) {
		return nil, fmt.Errorf("another client deleted %d of our %d pods in namespace %s",
			len(names)-len(ours), len(names), t.namespace)
	}
	for i := range ours {
		if err := kube.Trouble(&ours[i], imageNeeds); err != nil {
			return nil, err
		}
	}
	return ours, nil
}

// ready waits until every job waits for the start.
func (t *transcoding) ready(ctx context.Context) error {
	begin := time.Now()
	return kube.Wait(ctx, 250*time.Millisecond, readyTimeout, func() (string, bool, error) {
		pods, err := t.list(ctx)
		if err != nil {
			return "", false, err
		}
		for i := range pods {
			p := &pods[i]
			if kube.Running(p) {
				continue
			}
			if p.Spec.NodeName == "" && time.Since(begin) > placeTimeout {
				return "", false, fmt.Errorf("pod %s cannot run on node %s: %s", p.Name, t.node.Name, kube.Pending(p))
			}
			return fmt.Sprintf("pod %s is not ready: %s", p.Name, kube.Pending(p)), false, nil
		}
		return "", true, nil
	})
}

// weigh returns the least weight that the kernel holds for a weighted pod. It gives the agent some time to set it. It
// is no error if the weight cannot be read: the result says so.
func (t *transcoding) weigh(ctx context.Context) (Weight, error) {
	t.report(progress.Step{Doing: "reading the weights from the agent"})
	for begin := time.Now(); ; {
		least := Weight{Shares: weightedShares}
		for _, name := range t.weighted {
			w, err := t.cfg.Weight(ctx, t.namespace, name)
			if err != nil {
				return Weight{Why: err.Error()}, context.Cause(ctx)
			}
			if w.Shares < least.Shares {
				least = w
			}
		}
		if least.Shares == weightedShares || time.Since(begin) > weightTimeout {
			return least, nil
		}
		if err := sandbox.Sleep(ctx, 250*time.Millisecond); err != nil {
			return Weight{}, err
		}
	}
}

// start sends the common start to every job, by the node's clock, which may differ from ours.
func (t *transcoding) start(ctx context.Context) error {
	out, err := t.exec(ctx, t.weighted[0], "date +%s")
	if err != nil {
		return err
	}
	now, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	if err != nil {
		return fmt.Errorf("reading the node's time: %w", err)
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
func (t *transcoding) finish(ctx context.Context) (jobs []job, err error) {
	begin := time.Now()
	for {
		pods, err := t.list(ctx)
		if err != nil {
			return nil, err
		}
		jobs = nil
		for i := range pods {
			if _, done := kube.Ended(&pods[i]); !done {
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
		t.report(progress.Step{
			Doing: "transcoding",
			Now:   fmt.Sprintf("%d of %d done, %.0f s", len(jobs), len(pods), time.Since(begin).Seconds()),
		})
		if err := sandbox.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// read reads the report of a job that has ended, and checks that it did as much as the others.
func (t *transcoding) read(p *corev1.Pod) (job, error) {
	state, _ := kube.Ended(p)
	r, err := parseReport(state.Message)
	if err != nil {
		return job{}, fmt.Errorf("pod %s: %w", p.Name, err)
	}
	if want := int64(t.cfg.Seconds) * framesPerSecond; r.frames != want {
		return job{}, fmt.Errorf("pod %s transcoded %d frames instead of %d", p.Name, r.frames, want)
	}
	return job{weighted: slices.Contains(t.weighted, p.Name), took: r.took, cpu: r.cpu}, nil
}

func (t *transcoding) report(step progress.Step) {
	if t.cfg.Progress != nil {
		step.Experiment = Name
		t.cfg.Progress(step)
	}
}
