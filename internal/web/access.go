package web

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

const (
	trustTTL      = 30 * time.Second // for which the API server's word about a token, or a right, is remembered
	longestToken  = 16 << 10         // bytes
	maxCallers    = 1024             // that are remembered
	maxRights     = 256              // of one caller that are remembered
	maxRefused    = 4096             // wrong tokens that are remembered
	reviewTimeout = 5 * time.Second
)

var (
	errNoToken = problem{http.StatusUnauthorized,
		"This needs a token: send it as \"Authorization: Bearer TOKEN\". \"kubectl create token NAME\" makes one."}
	errWrongToken = problem{http.StatusUnauthorized,
		"The API server does not accept this token: it is wrong, has expired, or is for another audience."}
	errTooMany = problem{http.StatusTooManyRequests, "Too many requests. Try again in two seconds."}
)

// access asks the API server who callers are and what they may read, and remembers the answers for a while.
type access struct {
	client kubernetes.Interface
	now    func() time.Time
	// strangers limits the reviews of tokens that were never accepted. A flood of wrong tokens therefore costs the API
	// server little, and does not keep out callers who are known.
	strangers flowcontrol.RateLimiter

	mu      sync.Mutex
	callers map[[sha256.Size]byte]*caller
	refused map[[sha256.Size]byte]time.Time // until when
}

// caller is somebody whose token the API server accepted. Fields without a comment are guarded by mu.
type caller struct {
	access *access
	limit  flowcontrol.RateLimiter // of requests

	mu     sync.Mutex
	user   authenticationv1.UserInfo
	until  time.Time // when the token must be reviewed again
	rights map[right]verdict
}

// right is to read objects of one kind. Empty names mean all of them.
type right struct{ verb, group, resource, namespace, name string }

type verdict struct {
	granted bool
	until   time.Time
}

// The rights that the pages need.
var (
	listNodes    = right{verb: "list", group: v1alpha1.Group, resource: "nodereports"}
	listPolicies = right{verb: "list", group: v1alpha1.Group, resource: "colocationpolicies"}
	listPods     = right{verb: "list", resource: "pods"}
	listPools    = right{verb: "list", group: v1alpha1.Group, resource: "workerpools"}
)

func (r right) in(namespace string) right { r.namespace = namespace; return r }

func (r right) String() string {
	text := r.verb + " " + r.resource
	if r.group != "" {
		text += "." + r.group
	}
	if r.name != "" {
		text += " " + r.name
	}
	if r.namespace != "" {
		text += " in namespace " + r.namespace
	}
	return text
}

func newAccess(client kubernetes.Interface, now func() time.Time) *access {
	return &access{
		client: client, now: now, strangers: flowcontrol.NewTokenBucketRateLimiter(10, 20),
		callers: map[[sha256.Size]byte]*caller{}, refused: map[[sha256.Size]byte]time.Time{},
	}
}

// caller returns who sent a request, by its header Authorization. The error is a [problem] if the caller is at fault;
// otherwise the API server could not be asked.
func (a *access) caller(ctx context.Context, header string) (*caller, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, errNoToken
	}
	if len(token) > longestToken || strings.ContainsAny(token, " \t\r\n") {
		return nil, errWrongToken
	}
	key := sha256.Sum256([]byte(token))
	a.mu.Lock()
	c, known := a.callers[key]
	refused := a.now().Before(a.refused[key])
	a.mu.Unlock()
	switch {
	case refused:
		return nil, errWrongToken
	case !known && !a.strangers.TryAccept():
		return nil, errTooMany
	case !known:
		c = &caller{
			access: a, rights: map[right]verdict{}, limit: flowcontrol.NewTokenBucketRateLimiter(10, 40),
		}
	}
	if !c.limit.TryAccept() {
		return nil, errTooMany
	}
	accepted, err := c.review(ctx, token)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !accepted {
		delete(a.callers, key)
		makeRoom(a.refused, maxRefused, func(until time.Time) time.Time { return until })
		a.refused[key] = a.now().Add(trustTTL)
		return nil, errWrongToken
	}
	if first, there := a.callers[key]; there {
		return first, nil // of two requests that came at the same time
	}
	makeRoom(a.callers, maxCallers, func(c *caller) time.Time { return c.until })
	a.callers[key] = c
	return c, nil
}

// review asks the API server about the token of a caller, unless it did lately.
func (c *caller) review(ctx context.Context, token string) (accepted bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.access.now()
	if now.Before(c.until) {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	// Without audiences the API server accepts tokens that are meant for itself, and no others.
	review, err := c.access.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("reviewing a token: %w", err)
	}
	if !review.Status.Authenticated || review.Status.Error != "" {
		return false, nil
	}
	c.user, c.until = review.Status.User, now.Add(trustTTL)
	clear(c.rights) // the groups may have changed
	return true, nil
}

func (c *caller) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.user.Username
}

// may reports whether the caller has a right. An error means that nobody knows, so nothing may be shown.
func (c *caller) may(ctx context.Context, r right) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.access.now()
	if v, known := c.rights[r]; known && now.Before(v.until) {
		return v.granted, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range c.user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := c.access.client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: c.user.Username, UID: c.user.UID, Groups: c.user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: r.resource, Namespace: r.namespace, Name: r.name,
			},
		}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("reviewing the right to %s: %w", r, err)
	}
	makeRoom(c.rights, maxRights, func(v verdict) time.Time { return v.until })
	c.rights[r] = verdict{review.Status.Allowed && !review.Status.Denied, now.Add(trustTTL)}
	return c.rights[r].granted, nil
}

// must returns a [problem] if the caller lacks a right.
func (c *caller) must(ctx context.Context, r right) error {
	granted, err := c.may(ctx, r)
	if err == nil && !granted {
		return problem{http.StatusForbidden, fmt.Sprintf("User %s may not %s.", c.name(), r)}
	}
	return err
}

// makeRoom drops the entry that expires first if the map has reached its maximum size.
func makeRoom[K comparable, V any](entries map[K]V, most int, until func(V) time.Time) {
	if len(entries) < most {
		return
	}
	delete(entries, slices.MinFunc(slices.Collect(maps.Keys(entries)), func(a, b K) int {
		return until(entries[a]).Compare(until(entries[b]))
	}))
}
