// Package olap describes engines whose workers all have one size, for the controller of worker pools. Each of them has
// a file of its own, which returns its [Kind].
package olap

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/drain"
)

// HostVariable is the environment variable of a worker's container with the name under which it is to register.
const HostVariable = "WATERLINE_HOST"

// Kind is how the workers of one pool run in pods, and how they are drained.
type Kind struct {
	Engine string // for people, such as Trino
	Field  string // of the spec, such as spec.trino
	User   string // who the manager is to the engine
	Secret string // name of the Secret with the user's password or token; "": none
	// Drainer makes the client of the engine. It connects when it is used.
	Drainer func(auth drain.Auth) (drain.Drainer, error)
	// Least is what a worker without work takes from the request to drain to its end.
	Least time.Duration

	Args []string // after those of the template; they may refer to [HostVariable] as $(WATERLINE_HOST)
	Port int32    // of the worker's web services, where the manager asks it
	// Dir is the directory of the configuration. It has Defaults, over them the files of the user's ConfigMap Given, if it
	// is not "", and over these Files. Names have no directory.
	Dir             string
	Defaults, Files map[string]string
	Given           string
	Catalogs        string // another ConfigMap of the user, mounted at CatalogsDir; "": none
	CatalogsDir     string
	Work            string // a directory that the worker may write to
	// Hook is a shell script that asks the worker to drain from inside its container, for when no manager does.
	Hook string
}

// Of returns how the workers of a pool run whose engine has workers of one size; nil: its engine is YARN. grace is the
// grace period of the engine, within the time that a pod has to drain, and memory that of a pod in bytes.
//
// To remove an engine, remove its case, its file, its folder in internal/drain, and its field of the spec.
func Of(spec *v1alpha1.WorkerPoolSpec, grace, within time.Duration, memory int64) *Kind {
	switch {
	case spec.Trino != nil:
		return trinoKind(spec.Trino, grace)
	case spec.Impala != nil:
		return impalaKind(spec.Impala, grace, within, memory)
	}
	return nil
}

// OwnFiles returns the files of the pool's own ConfigMap.
func (k *Kind) OwnFiles() map[string]string {
	all := map[string]string{}
	maps.Copy(all, k.Defaults)
	maps.Copy(all, k.Files)
	return all
}

// Volumes returns the volumes of Dir and of CatalogsDir; nil: there is nothing to mount. own is the name of the pool's
// own ConfigMap.
func (k *Kind) Volumes(own string) (conf, catalogs *corev1.ProjectedVolumeSource) {
	from := func(name string, files map[string]string) corev1.VolumeProjection {
		s := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: name},
		}}
		for _, file := range slices.Sorted(maps.Keys(files)) {
			s.ConfigMap.Items = append(s.ConfigMap.Items, corev1.KeyToPath{Key: file, Path: file})
		}
		return s
	}
	// Of two sources with the same path, the later one counts.
	var all []corev1.VolumeProjection
	if len(k.Defaults) > 0 {
		all = append(all, from(own, k.Defaults))
	}
	if k.Given != "" {
		all = append(all, from(k.Given, nil))
	}
	if len(k.Files) > 0 {
		all = append(all, from(own, k.Files))
	}
	if len(all) > 0 {
		conf = &corev1.ProjectedVolumeSource{Sources: all}
	}
	if k.Catalogs != "" {
		catalogs = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{from(k.Catalogs, nil)}}
	}
	return conf, catalogs
}

// The keys of the Secret of a pool.
const (
	KeyPassword = "password"
	KeyToken    = "token"
	KeyCA       = "ca.crt"
)

// Auth returns who the manager is to the engine. secret is the content of the pool's Secret.
func (k *Kind) Auth(secret map[string][]byte) (drain.Auth, error) {
	auth := drain.Auth{
		User: k.User, Password: string(secret[KeyPassword]), Token: string(secret[KeyToken]), CA: secret[KeyCA],
	}
	switch {
	case k.Secret == "":
		return drain.Auth{User: k.User}, nil
	case auth.Password != "" && auth.Token != "":
		return auth, fmt.Errorf("%s.authSecret: Secret %s has the keys %s and %s; keep one", k.Field, k.Secret, KeyPassword,
			KeyToken)
	case auth.Password == "" && auth.Token == "" && len(auth.CA) == 0:
		return auth, fmt.Errorf("%s.authSecret: Secret %s has none of the keys %s, %s and %s", k.Field, k.Secret,
			KeyPassword, KeyToken, KeyCA)
	}
	return auth, nil
}
