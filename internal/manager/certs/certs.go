// Package certs keeps the webhook's certificates: an authority of our own, a serving certificate, the Secret in which
// replicas share them, and the CA bundle in the webhook's configuration. When one of them is renewed, nothing has to be
// restarted, and no connection is refused:
//
//   - The serving certificate is renewed long before it ends, by an authority that API servers know.
//   - A new authority is made known beside the old one, and signs from an hour later on.
//   - If the Secret is deleted, replicas put back what they have.
//
// All replicas do the same. The Secret is written only as long as it is the version that was read, so of two that renew
// at once one wins, and the other takes over what that wrote.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Options say where the certificates are kept and whom they are for.
type Options struct {
	Client    kubernetes.Interface
	Namespace string   // of the Secret
	Secret    string   // its name; it is created where there is none, and filled where it is empty
	Names     []string // DNS names or addresses under which API servers call, such as NAME.NAMESPACE.svc
	Webhooks  []string // MutatingWebhookConfigurations, of which each webhook is told to trust our authority
	Now       func() time.Time
	Log       *slog.Logger  // nil: nobody is told
	Interval  time.Duration // between two looks at Secret and webhooks; 0: 10 s
}

// Certs keeps the certificates of one replica.
type Certs struct {
	options Options
	held    bundle // what was last in the Secret
	serving atomic.Pointer[tls.Certificate]
	synced  atomic.Bool
}

// New returns certificates that [Certs.Run] will keep. There are none before.
func New(o Options) *Certs {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	return &Certs{options: o}
}

// GetCertificate is for [tls.Config]: each connection is served with the newest certificate.
func (c *Certs) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if serving := c.serving.Load(); serving != nil {
		return serving, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Ready reports whether there is a certificate that API servers were told to trust.
func (c *Certs) Ready() bool { return c.synced.Load() }

// Run keeps the certificates until the context ends. What fails is tried again.
func (c *Certs) Run(ctx context.Context) {
	tick := time.NewTicker(c.options.Interval)
	defer tick.Stop()
	for {
		if err := c.Sync(ctx); err != nil && ctx.Err() == nil {
			c.options.Log.Warn("The webhook's certificates were not brought up to date", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Sync brings Secret, served certificate and webhooks up to date once. It is not for concurrent use. Where the API
// server cannot be asked, what was known before is served on.
func (c *Certs) Sync(ctx context.Context) error {
	b, err := c.share(ctx)
	if err != nil {
		return err
	}
	c.held = b
	// Trust goes first: should the authority be new to API servers, they refuse us until they know it in any case.
	err = c.tell(ctx, b.trust())
	c.serving.Store(&b.serving)
	if err != nil {
		return err
	}
	c.synced.Store(true)
	return nil
}

// share returns what is in the Secret, after bringing that up to date.
func (c *Certs) share(ctx context.Context) (bundle, error) {
	const attempts = 5
	secrets := c.options.Client.CoreV1().Secrets(c.options.Namespace)
	for range attempts {
		secret, err := secrets.Get(ctx, c.options.Secret, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return bundle{}, fmt.Errorf("reading the secret %s: %w", c.options.Secret, err)
		}
		old := c.held
		if !missing {
			if old, err = decode(secret.Data); err != nil && len(secret.Data) > 0 {
				c.options.Log.Warn("The webhook's secret is not whole and is repaired", "secret", c.options.Secret, "error", err)
			}
			if len(old.authorities) == 0 {
				old = c.held // what others serve and trust beats what is new to all
			}
		}
		next, changed, err := renew(c.options.Now(), old, c.options.Names)
		if err != nil {
			return bundle{}, err
		}
		data, err := next.encode()
		if err != nil {
			return bundle{}, err
		}
		if !missing && !changed && bytes.Equal(secret.Data[keyAuthorities], data[keyAuthorities]) {
			return next, nil
		}
		if missing {
			_, err = secrets.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: c.options.Secret, Namespace: c.options.Namespace},
				Data:       data,
			}, metav1.CreateOptions{})
		} else {
			secret.Data = data
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		switch {
		case err == nil:
			c.options.Log.Info("The webhook's certificates were renewed", "secret", c.options.Secret, "until",
				next.serving.Leaf.NotAfter)
			return next, nil
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
			return bundle{}, fmt.Errorf("writing the secret %s: %w", c.options.Secret, err)
		}
	}
	return bundle{}, fmt.Errorf("writing the secret %s: another writer was faster %d times", c.options.Secret, attempts)
}

// tell makes API servers trust what our authorities signed.
func (c *Certs) tell(ctx context.Context, trust []byte) error {
	var problems []error
	for _, name := range c.options.Webhooks {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return c.tellOne(ctx, name, trust) })
		if err != nil {
			problems = append(problems,
				fmt.Errorf("writing the trusted authorities into the webhook configuration %s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// tellOne patches nothing but the caBundle of the webhooks. An update of the whole configuration would drop fields that
// only a newer Kubernetes knows, and the admission policy that confines the manager refuses that.
func (c *Certs) tellOne(ctx context.Context, name string, trust []byte) error {
	configurations := c.options.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	have, err := configurations.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var changed []any
	for _, w := range have.Webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, trust) { // the API server finds it in the list by its name
			changed = append(changed, map[string]any{"name": w.Name, "clientConfig": map[string]any{"caBundle": trust}})
		}
	}
	if len(changed) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": have.ResourceVersion}, // one that was removed meanwhile is not added
		"webhooks": changed,
	})
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	_, err = configurations.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}
