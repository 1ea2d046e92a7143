package e2e_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// fakeRuntime runs NodeManagers in a fake ResourceManager of each pool's own.
type fakeRuntime struct{ y *yard }

// start implements [podRuntime]. The NodeManager starts with what its yarn-site.xml says.
func (r *fakeRuntime) start(ctx context.Context, k *yarnPod) (ip string, err error) {
	pod := k.pod
	floor, err := r.floor(ctx, pod)
	if err != nil {
		return "", err
	}
	r.y.mu.Lock()
	if k.pool.Hosts()[k.host] != k.pool.label {
		k.pool.unlabelled++
	}
	r.y.mu.Unlock()
	as := k.host
	if k.pool.as != nil {
		as = k.pool.as(k.host)
	}
	ip = fmt.Sprintf("10.77.%d.%d", pod.UID[0], pod.UID[1])
	if as != k.host {
		ip = bed.HostAddress()
		k.serve(ip, as)
	}
	if as == "" {
		k.pool.Start(fakerm.Worker{Host: k.host, Size: floor, Label: k.pool.label, Never: true})
	} else {
		k.pool.Start(fakerm.Worker{Host: as, Size: floor, Label: k.pool.label})
	}
	return ip, nil
}

// up implements [podRuntime].
func (r *fakeRuntime) up(k *yarnPod) bool { return k.pool.as != nil || k.pool.Up(k.host) }

// stops implements [podRuntime]. The hook waits until no container ran for four seconds. When the pod is deleted once
// more with a shorter time, it does not learn of that.
func (r *fakeRuntime) stops(k *yarnPod, now time.Time) bool {
	if k.deleted.IsZero() {
		k.deleted, k.lastBusy = k.pod.DeletionTimestamp.Time, now
	}
	if k.pool.Node(k.host).Containers > 0 {
		k.lastBusy = now
	}
	if k.started && now.Before(k.deleted) && now.Sub(k.lastBusy) < 4*time.Second {
		return false
	}
	k.close()
	if k.started {
		r.stop(k, now)
	}
	return true
}

// kill implements [podRuntime].
func (r *fakeRuntime) kill(k *yarnPod) {
	k.pool.Die(k.host)
	k.close()
}

// floor reads the size in the yarn-site.xml of a pod. Hadoop puts the pod's environment in.
func (r *fakeRuntime) floor(ctx context.Context, pod *corev1.Pod) (size fakerm.Size, err error) {
	var config corev1.ConfigMap
	err = r.y.core.Get().Namespace(poolNamespace).Resource("configmaps").
		Name(metav1.GetControllerOf(pod).Name + "-workers").Do(ctx).Into(&config)
	if err != nil {
		return size, err
	}
	var text struct {
		Properties []struct {
			Name  string `xml:"name"`
			Value string `xml:"value"`
		} `xml:"property"`
	}
	if err := xml.Unmarshal([]byte(config.Data["yarn-site.xml"]), &text); err != nil {
		return size, err
	}
	environment := map[string]string{}
	for _, e := range pod.Spec.Containers[0].Env {
		environment["env."+e.Name] = e.Value
	}
	for _, property := range text.Properties {
		n, _ := strconv.ParseInt(os.Expand(property.Value, func(name string) string { return environment[name] }), 10, 64)
		switch property.Name {
		case "yarn.nodemanager.resource.memory-mb":
			size.MemoryMiB = n
		case "yarn.nodemanager.resource.cpu-vcores":
			size.VCores = n
		}
	}
	return size, nil
}

// serve serves the web services of a NodeManager that registers under another name.
func (k *yarnPod) serve(ip, as string) {
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "8042"))
	if err != nil {
		k.pool.complaints = append(k.pool.complaints, err.Error())
		return
	}
	name := as
	if name == "" {
		name = k.host
	}
	k.server = &http.Server{Handler: k.pool.NodeManager(name, as), ReadHeaderTimeout: time.Second}
	go func() {
		if err := k.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
}

func (k *yarnPod) close() {
	if k.server != nil {
		_ = k.server.Close()
	}
}

// stop ends a pod in order, and counts the containers that end before their time.
func (r *fakeRuntime) stop(k *yarnPod, now time.Time) {
	n := k.pool.Stop(k.host)
	if n == 0 {
		return
	}
	k.pool.ended += n
	end := k.ending()
	by := end.by
	k.pool.ends = append(k.pool.ends, end)
	if by.IsZero() || now.Before(by) {
		k.pool.early += n
		k.pool.complaints = append(k.pool.complaints, fmt.Sprintf("%s: %d containers ended with the pod before %s: %s, "+
			"and when it was deleted %+v", now.Format(time.StampMilli), n, by.Format(time.StampMilli),
			k.pod.Annotations[v1alpha1.AnnotationPoolMarks], k.past.deleted))
	}
}
