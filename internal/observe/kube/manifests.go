package kube

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Manifests reads the pods of this node from a directory of ordinary Pod manifests, for a node without a cluster. Each
// manifest needs metadata.uid, because the pod's cgroup has that name. Namespace manifests give the labels of
// namespaces.
type Manifests struct {
	*collection
	dir     string
	every   time.Duration
	selfUID string
	log     *slog.Logger
	trouble string // the error of the directory that was logged last
	files   map[string]manifestFile
}

// manifestFile is one file as it was last read. If it cannot be read any more, its pods stay.
type manifestFile struct {
	size     int64
	modified time.Time
	pods     []*corev1.Pod
	spaces   []*corev1.Namespace
}

// NewManifests follows the *.yaml, *.yml and *.json files in a directory, and reads changed files at an interval.
// selfUID is the UID of the agent's own pod, allocatableMilli the CPU that pods may request on this node, in
// milli-cores.
func NewManifests(
	dir string, every time.Duration, selfUID string, allocatableMilli int64, log *slog.Logger,
) *Manifests {
	m := &Manifests{
		collection: newCollection(1), dir: dir, every: every, selfUID: selfUID, log: log, files: map[string]manifestFile{},
	}
	m.node.Allocatable.CPU = allocatableMilli
	return m
}

// Run keeps the collection up to date until the context ends. An error of a file is logged once for each change of the
// file, an error of the directory once.
func (m *Manifests) Run(ctx context.Context) {
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		changed, err := m.scan()
		m.report(err)
		if err == nil && (changed || m.missing > 0) {
			m.publish()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// report logs the error of the directory when it changes.
func (m *Manifests) report(err error) {
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	switch {
	case trouble == m.trouble:
	case trouble == "":
		m.log.Info("pod manifests can be read again")
	default:
		m.log.Warn("reading pod manifests; their previous content stays in force", "err", trouble)
	}
	m.trouble = trouble
}

// scan reads the files that changed.
func (m *Manifests) scan() (changed bool, err error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return false, err
	}
	seen := map[string]bool{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() ||
			!slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		seen[e.Name()] = true
		old := m.files[e.Name()]
		if old.size == info.Size() && old.modified.Equal(info.ModTime()) {
			continue
		}
		file := manifestFile{size: info.Size(), modified: info.ModTime()}
		content, err := os.ReadFile(filepath.Join(m.dir, e.Name()))
		if err == nil {
			file.pods, file.spaces, err = parseManifests(content)
		}
		if err != nil {
			m.log.Warn("reading a pod manifest; its previous content stays in force", "file", e.Name(), "err", err)
			file.pods, file.spaces = old.pods, old.spaces
		}
		m.files[e.Name()] = file
		changed = true
	}
	maps.DeleteFunc(m.files, func(name string, _ manifestFile) bool {
		changed = changed || !seen[name]
		return !seen[name]
	})
	return changed, nil
}

// publish sets the collection to the content of the files.
func (m *Manifests) publish() {
	m.change(func() {
		clear(m.pods)
		clear(m.namespaces)
		for _, name := range slices.Sorted(maps.Keys(m.files)) {
			for _, p := range m.files[name].pods {
				if pod, ok := Pod(p, m.selfUID); ok {
					m.pods[podKey(p)] = pod
				}
			}
			for _, ns := range m.files[name].spaces {
				m.setNamespace(ns)
			}
		}
		m.missing = 0
	})
}

// parseManifests reads the documents of one file. A file without documents is an error: while a file is being written
// it is empty for a moment, and its pods must not lose their weights meanwhile.
func parseManifests(content []byte) (pods []*corev1.Pod, spaces []*corev1.Namespace, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for i := 1; ; i++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) && len(pods)+len(spaces) == 0 {
			return nil, nil, errors.New("it holds no Pod and no Namespace: remove the file to remove its pods")
		}
		if errors.Is(err, io.EOF) {
			return pods, spaces, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", i, err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", i, err)
		}
		switch kind.Kind {
		case "":
			if len(bytes.TrimSpace(document)) > 0 {
				return nil, nil, fmt.Errorf("document %d has no kind: write a v1 Pod", i)
			}
		case "Pod":
			pod := &corev1.Pod{}
			if err := yaml.Unmarshal(document, pod); err != nil {
				return nil, nil, fmt.Errorf("document %d: %w", i, err)
			}
			if _, ok := Pod(pod, ""); !ok {
				return nil, nil, fmt.Errorf("document %d: metadata.uid %q: write the UID in the name of the pod's cgroup",
					i, pod.UID)
			}
			setDefaults(pod)
			pods = append(pods, pod)
		case "Namespace":
			ns := &corev1.Namespace{}
			if err := yaml.Unmarshal(document, ns); err != nil {
				return nil, nil, fmt.Errorf("document %d: %w", i, err)
			}
			spaces = append(spaces, ns)
		default:
			return nil, nil, fmt.Errorf("document %d: kind %q: only v1 Pod and Namespace can be used", i, kind.Kind)
		}
	}
}

// setDefaults sets those defaults of the API server that matter here.
func setDefaults(p *corev1.Pod) {
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			for name, limit := range r.Limits {
				if _, set := r.Requests[name]; !set {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = limit
				}
			}
		}
	}
}
