package pools

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/yarn"
)

// perSecond and burst bound the rate of requests to a ResourceManager.
const perSecond, burst = 20, 20

// endpoint returns the cluster of a pool. secret is the content of its Secret.
func endpoint(spec *v1alpha1.YARNSpec, secret map[string][]byte) yarn.Endpoint {
	return yarn.Endpoint{
		ResourceManagers: spec.ResourceManagers, Admins: spec.Admins, User: spec.User, Secret: secret,
	}
}

// newCluster makes the clients of a cluster. reason names the cause of an error.
func newCluster(
	e yarn.Endpoint, secretName string, d *dialer, l *yarn.Logins,
) (c *yarn.Cluster, reason string, err error) {
	limit := flowcontrol.NewTokenBucketRateLimiter(perSecond, burst)
	c, err = yarn.NewCluster(yarn.ClusterOptions{
		Endpoint: e, Dial: d.dial, DialWorker: d.dialWorker, Wait: limit.Wait, Logins: l,
	})
	var bad *yarn.SecretError
	switch {
	case errors.As(err, &bad):
		return nil, "BadSecret", fmt.Errorf("spec.yarn.authSecret: Secret %s: %w", secretName, err)
	case err != nil:
		return nil, "Invalid", fmt.Errorf("spec.yarn.%w", err)
	}
	return c, "", nil
}

// connect makes the clients of the pool's cluster, unless there are some. It returns false if there can be none.
func (r *round) connect(ctx context.Context) bool {
	k := r.k
	d, err := newDialer(k.namespace, k.c.o.Reach[k.namespace])
	if err != nil {
		r.t.add(v1alpha1.ConditionRMUnreachable, notAllowed, err)
		return false
	}
	secretName := v1alpha1.NameOf(r.p.Spec.YARN.AuthSecret)
	secret, err := r.secretOf(ctx, "spec.yarn", secretName)
	if err != nil {
		r.t.add(v1alpha1.ConditionRMUnreachable, "NoSecret", err)
		return false
	}
	e, before := endpoint(r.p.Spec.YARN, secret), k.observer.Cluster
	if before != nil && reflect.DeepEqual(e, k.endpoint) {
		return true
	}
	c, reason, err := newCluster(e, secretName, d, &k.c.logins)
	if err != nil {
		k.secretRead = time.Time{} // it may be corrected now
		r.t.add(v1alpha1.ConditionRMUnreachable, reason, err)
		return false
	}
	if before != nil {
		c.Requests.Store(before.Requests.Load())
	}
	k.endpoint = e
	k.observer.Use(c)
	k.actor.Use(c)
	return true
}

// unreachable notes that the ResourceManager does not answer.
func (r *round) unreachable(err error) {
	reason, fix := causeOf(err)
	if reason == "LoginFailed" || reason == "Refused" {
		r.k.secretRead = time.Time{} // it may be corrected now
	}
	r.t.add(v1alpha1.ConditionRMUnreachable, reason, fmt.Errorf("no ResourceManager of %s answers as the active one; "+
		"workers stay as they are, and stop at their ends; %s: %w",
		strings.Join(r.p.Spec.YARN.ResourceManagers, ", "), fix, err))
}

// causeOf names the cause of an error of the ResourceManager, and what to do.
func causeOf(err error) (reason, fix string) {
	var status *yarn.StatusError
	var login *yarn.KerberosError
	switch {
	case isNotAllowed(err):
		return notAllowed, "the administrator of the cluster says what pools may reach"
	case errors.As(err, &login):
		return "LoginFailed", "check the Secret of spec.yarn.authSecret, and the KDC"
	case errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return "Refused", "check spec.yarn.user, or the Secret of spec.yarn.authSecret"
	case errors.Is(err, yarn.ErrStandby):
		reason = "Standby"
	default:
		reason = "NoAnswer"
	}
	return reason, "check that spec.yarn.resourceManagers has the addresses of all of the cluster's, and that the " +
		"manager can reach them"
}
