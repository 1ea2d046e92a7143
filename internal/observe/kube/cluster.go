package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Cluster lists and watches the pods of one node, the node, the policies, and the node's report. It keeps a [model.Pod]
// of each pod; the rest of the object is dropped as it arrives.
type Cluster struct {
	*collection
	client     *rest.RESTClient
	custom     *rest.RESTClient // nil: policies and reports are not followed
	nodeName   string
	selfUID    string
	log        *slog.Logger
	before     map[string]model.ClusterPolicy // policies before the list that is being received
	selects    chan struct{}                  // a policy selects by the labels of namespaces
	namespaces bool                           // namespaces are followed
}

// NewClient returns a client for the core API group that speaks protobuf. It has no other group's types, which saves
// 10 MB of memory against the full client.
func NewClient(config *rest.Config) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	c.APIPath = "/api"
	c.GroupVersion = &corev1.SchemeGroupVersion
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return newClient(c, corev1.AddToScheme)
}

// NewCustomClient returns a client for Waterline's own API group.
func NewCustomClient(config *rest.Config) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	c.APIPath = "/apis"
	c.GroupVersion = &schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return newClient(c, v1alpha1.AddToScheme)
}

// newClient returns a client that knows the types which add adds.
func newClient(c *rest.Config, add func(*runtime.Scheme) error) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(add(scheme))
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("setting up the API client: %w", err)
	}
	return client, nil
}

// Backoff returns the pauses between attempts to list or watch while the API server is away. Its return is noticed
// within 16 s. With the defaults of client-go that took a minute, during which a disabled policy stayed in force.
func Backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Cap: 8 * time.Second, Steps: 10, Factor: 2, Jitter: 1}
}

// NewCluster follows the pods bound to a node. selfUID is the UID of the agent's own pod. With a client for Waterline's
// own API group, the policies and the node's report are followed too. Namespaces are followed as soon as a policy
// selects by their labels, or from the start if namespaces is true.
func NewCluster(client, custom *rest.RESTClient, nodeName, selfUID string, namespaces bool, log *slog.Logger) *Cluster {
	lists := 2
	if custom != nil {
		lists += 2
	}
	if namespaces {
		lists++
	}
	return &Cluster{
		collection: newCollection(lists), client: client, custom: custom, nodeName: nodeName, selfUID: selfUID,
		log: log, selects: make(chan struct{}, 1), namespaces: namespaces,
	}
}

// Run keeps the collection up to date until the context ends. While the API server is away, the last state stays.
func (c *Cluster) Run(ctx context.Context) {
	var wg sync.WaitGroup
	follow := func(client *rest.RESTClient, resource string, example runtime.Object, selector fields.Selector, s *store) {
		s.collection = c.collection
		list := cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, selector)
		reflector := cache.NewReflectorWithOptions(list, example, s,
			cache.ReflectorOptions{Name: resource, Backoff: Backoff()})
		wg.Go(func() { reflector.RunWithContext(ctx) })
	}
	follow(c.client, "pods", &corev1.Pod{}, fields.OneTermEqualSelector("spec.nodeName", c.nodeName), &store{
		clear: func() { clear(c.pods) },
		set: func(obj any) {
			p := obj.(*corev1.Pod)
			if pod, ok := Pod(p, c.selfUID); ok {
				c.pods[podKey(p)] = pod
			}
		},
		drop: func(obj any) { delete(c.pods, podKey(obj.(*corev1.Pod))) },
	})
	itself := fields.OneTermEqualSelector("metadata.name", c.nodeName)
	follow(c.client, "nodes", &corev1.Node{}, itself, &store{
		set: func(obj any) { c.node = NodeOf(obj.(*corev1.Node)) },
	})
	followNamespaces := func() {
		follow(c.client, "namespaces", &corev1.Namespace{}, fields.Everything(), &store{
			clear: func() { clear(c.collection.namespaces) },
			set:   func(obj any) { c.setNamespace(obj.(*corev1.Namespace)) },
			drop:  func(obj any) { delete(c.collection.namespaces, obj.(*corev1.Namespace).Name) },
		})
	}
	if c.namespaces {
		followNamespaces()
	}
	if c.custom != nil {
		follow(c.custom, "colocationpolicies", &v1alpha1.ColocationPolicy{}, fields.Everything(), &store{
			clear: func() { c.before = maps.Clone(c.policies); clear(c.policies) },
			set:   func(obj any) { c.setPolicy(obj.(*v1alpha1.ColocationPolicy)) },
			drop:  func(obj any) { delete(c.policies, obj.(*v1alpha1.ColocationPolicy).Name) },
		})
		follow(c.custom, "nodereports", &v1alpha1.NodeReport{}, itself, &store{
			clear: func() { c.reported, c.withdrawn = false, false },
			set: func(obj any) {
				c.reported = true
				c.withdrawn = Withdrawn(obj.(*v1alpha1.NodeReport))
			},
			drop: func(any) { c.reported, c.withdrawn = false, false },
		})
		wg.Go(func() {
			select {
			case <-c.selects:
				followNamespaces()
			case <-ctx.Done():
			}
		})
	}
	wg.Wait()
}

// setPolicy stores a policy. If it cannot be used, its previous content stays in force: without it, another policy
// would govern the node.
func (c *Cluster) setPolicy(p *v1alpha1.ColocationPolicy) {
	policy, err := Policy(p)
	policy.Generation = p.Generation
	if err != nil {
		c.log.Warn("a policy cannot be used; its previous content stays in force", "err", err)
		before, known := c.policies[p.Name]
		if !known { // all are being listed anew
			before, known = c.before[p.Name]
		}
		if known {
			before.Paused = Paused(p)
			c.policies[p.Name] = before
		}
		return
	}
	c.policies[p.Name] = policy
	if policy.Policy.SelectsNamespaces() && !c.namespaces {
		c.namespaces = true
		c.missing++ // nothing is decided until their labels are known
		c.selects <- struct{}{}
	}
}

// NodeOf converts a Node. Of the resources under Koordinator's names, it knows those that Waterline recorded on the
// Node as its own, while they have the recorded amount or are gone. The others belong to another system.
func NodeOf(n *corev1.Node) model.NodeInfo {
	node := model.NodeInfo{
		UID:         string(n.UID),
		Labels:      n.Labels,
		Paused:      set(n.Annotations, v1alpha1.AnnotationPause),
		Capacity:    amount(n.Status.Capacity),
		Allocatable: amount(n.Status.Allocatable),
	}
	records := strings.Split(n.Annotations[v1alpha1.AnnotationPublished], ",")
	for _, r := range model.NodeResources() {
		name := v1alpha1.SlackResource(string(r.Tier), r.Memory, r.Koordinator)
		capacity, found := n.Status.Capacity[corev1.ResourceName(name)]
		allocatable, also := n.Status.Allocatable[corev1.ResourceName(name)]
		even := found && also && capacity.Cmp(allocatable) == 0
		if r.Koordinator {
			i := slices.IndexFunc(records, func(text string) bool { return strings.HasPrefix(text, name+"=") })
			if i < 0 {
				continue
			}
			is := func(q resource.Quantity) bool { return records[i] == name+"="+strconv.FormatInt(q.Value(), 10) }
			if found && !is(capacity) || also && !is(allocatable) {
				continue
			}
			found = true // its record is to be removed with it
		}
		switch {
		case even:
			node.Published = append(node.Published, model.Published{NodeResource: r, Amount: capacity.Value()})
		case found || also:
			node.Published = append(node.Published, model.Published{NodeResource: r, Amount: model.Uneven})
		}
	}
	return node
}

func (c *collection) setNamespace(ns *corev1.Namespace) { c.namespaces[ns.Name] = ns.Labels }

func podKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// store passes the objects that a reflector receives to the collection. Each function runs under the collection's lock.
type store struct {
	*collection
	listed bool
	clear  func()
	set    func(obj any)
	drop   func(obj any)
}

var _ cache.ReflectorStore = (*store)(nil)

// Add implements [cache.ReflectorStore].
func (s *store) Add(obj any) error {
	s.change(func() { s.set(obj) })
	return nil
}

// Update implements [cache.ReflectorStore].
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements [cache.ReflectorStore].
func (s *store) Delete(obj any) error {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if s.drop != nil {
		s.change(func() { s.drop(obj) })
	}
	return nil
}

// Replace implements [cache.ReflectorStore].
func (s *store) Replace(list []any, _ string) error {
	s.change(func() {
		if s.clear != nil {
			s.clear()
		}
		for _, obj := range list {
			s.set(obj)
		}
		if !s.listed {
			s.listed = true
			s.missing--
		}
	})
	return nil
}

// Resync implements [cache.ReflectorStore].
func (s *store) Resync() error { return nil }
