// Package olap describes engines whose workers all have one size, for the controller of worker pools. Each folder
// beside it that is named after such an engine returns its [Kind].
package olap

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// Linger returns the script of a pod's preStop hook: it asks the worker to drain, and waits for its end, as long as it
// has to drain and not beyond end, if that is not zero. When the worker's process ends, the hook ends with it.
func (k *Kind) Linger(within time.Duration, end time.Time) string {
	script := fmt.Sprintf("until=$(($(date +%%s) + %d))\n", int64(within/time.Second))
	if !end.IsZero() {
		script += fmt.Sprintf("[ $until -lt %[1]d ] || until=%[1]d\n", end.Unix())
	}
	return script + k.Hook + "left=$((until - $(date +%s)))\nexec sleep $((left > 0 ? left : 0))\n"
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
