package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// maxLines is how many lines of a log a bundle has.
const maxLines = 5000

func supportBundleCommand() *cobra.Command {
	var cluster reach
	var nodes []string
	var file string
	c := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write one file with what a maintainer needs to help",
		Long: `Write a tar.gz with what a maintainer needs: versions, policies, NodeReports, pools, nodes, Waterline's own pods with
their logs and events, and of some nodes what the agent explains, its metrics and the end of its journal.

It reads no Secret and no ConfigMap. Values of environment variables and foreign annotations are left out, and what
looks like a password or a token in a log is replaced. Names of nodes, namespaces, pods and labels are in it: read it
before you pass it on.

It takes what RBAC allows, and lists in missing.txt what it could not get. It holds 64 MiB at most, before compression.`,
		Example: "  waterline support-bundle\n  waterline support-bundle --node worker-3 --file bundle.tar.gz",
		Args:    noArguments,
		RunE: cluster.connected(func(c *cobra.Command, a *apis) error {
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Minute)
			defer cancel()
			now := time.Now().UTC()
			if file == "" {
				file = "waterline-support-" + now.Format("20060102-150405") + ".tar.gz"
			}
			out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return fmt.Errorf("making the bundle: %w", err)
			}
			b := newBundle(out, now)
			b.collect(ctx, a, nodes)
			if err := errors.Join(b.close(), out.Close()); err != nil {
				return fmt.Errorf("writing %s: %w", file, err)
			}
			b.summary(c.OutOrStdout(), file)
			return nil
		}),
	}
	cluster.flags(c)
	c.Flags().StringSliceVar(&nodes, "node", nil, "nodes whose agents to ask (default up to 3, those with troubles first)")
	_ = c.RegisterFlagCompletionFunc("node", cluster.completion(nodeNames))
	c.Flags().StringVar(&file, "file", "", "the file to write (default waterline-support-TIME.tar.gz)")
	return c
}

// bundle is an archive that is being written.
type bundle struct {
	now     time.Time
	maxSize int // bytes, before compression
	maxFile int // bytes of one file
	zip     *gzip.Writer
	tar     *tar.Writer
	size    int
	files   []string
	missing []string
	err     error // of writing; nothing is written after it
}

func newBundle(out io.Writer, now time.Time) *bundle {
	zip := gzip.NewWriter(out)
	return &bundle{now: now, maxSize: 64 << 20, maxFile: 8 << 20, zip: zip, tar: tar.NewWriter(zip)}
}

// add adds a file, without secrets, and cut to its bound. Of a file that is too long, the end is kept.
func (b *bundle) add(name string, content []byte) {
	if cut := len(content) - b.maxFile; cut > 0 {
		// From the next line on: half a line might have a secret without the name that tells so.
		_, content, _ = bytes.Cut(content[cut-1:], []byte("\n"))
		b.lacks(name, fmt.Errorf("its first %d bytes: a file holds %d at most", cut, b.maxFile))
	}
	if content = scrub(content); b.size+len(content) > b.maxSize {
		b.lacks(name, fmt.Errorf("the bundle is full: it holds %d bytes at most", b.maxSize))
		return
	}
	b.write(name, content)
}

func (b *bundle) write(name string, content []byte) {
	if b.err != nil {
		return
	}
	header := &tar.Header{
		Name: "waterline-support/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: b.now, Format: tar.FormatPAX,
	}
	if b.err = b.tar.WriteHeader(header); b.err == nil {
		_, b.err = b.tar.Write(content)
	}
	b.size += len(content)
	b.files = append(b.files, name)
}

func (b *bundle) lacks(what string, err error) {
	b.missing = append(b.missing, fmt.Sprintf("%s: %s", what, scrub([]byte(err.Error()))))
}

// close writes what is missing, and ends the archive.
func (b *bundle) close() error {
	b.write("missing.txt", []byte(strings.Join(append(b.missing, ""), "\n")))
	return errors.Join(b.err, b.tar.Close(), b.zip.Close())
}

func (b *bundle) summary(out io.Writer, file string) {
	fmt.Fprintf(out, "%s: %s, %.1f MiB before compression\n", file, count(len(b.files), "file"), float64(b.size)/(1<<20))
	printEach(out, "missing: %s\n", b.missing)
	fmt.Fprintln(out, "It has names of nodes, namespaces, pods and labels. Read it before you pass it on.")
}

func (b *bundle) collect(ctx context.Context, a *apis, nodes []string) {
	b.add("versions.txt", fmt.Appendf(nil, "waterline %s, commit %s, at %s\n", version, builtFrom(),
		b.now.Format(time.RFC3339)))
	own := "/namespaces/" + a.home(ctx)
	custom := "/apis/" + v1alpha1.GroupVersion
	for _, o := range []struct{ name, path string }{
		{"kubernetes", "/version"}, {"policies", custom + "/colocationpolicies"}, {"nodereports", custom + "/nodereports"},
		{"pools", custom + "/workerpools"}, {"nodes", "/api/v1/nodes"}, {"pods", "/api/v1" + own + "/pods"},
		{"deployments", "/apis/apps/v1" + own + "/deployments"}, {"daemonsets", "/apis/apps/v1" + own + "/daemonsets"},
	} {
		b.object(ctx, o.name+".json", a.core.Get().AbsPath(o.path))
	}
	inOrder(map[string]string{"events-agents": agentName, "events-manager": managerName}, func(name, source string) {
		b.object(ctx, name+".json", a.core.Get().AbsPath("/api/v1/events").Param("fieldSelector", "source="+source))
	})
	r, err := readInventory(ctx, a)
	if err != nil {
		b.lacks("status.txt", err)
	} else {
		var text bytes.Buffer
		if err := r.status(b.now).print(&text, true); err == nil {
			b.add("status.txt", text.Bytes())
		}
		if len(nodes) == 0 {
			nodes = troubled(r, 3)
		}
	}
	b.logs(ctx, a, nodes)
	for _, node := range nodes {
		b.agent(ctx, a, node)
	}
}

// troubled returns nodes with an agent, those with troubles first.
func troubled(r *inventory, most int) []string {
	var with, without []string
	agents := map[string]bool{}
	for i := range r.pods {
		if p := &r.pods[i]; p.Labels[appLabel] == agentName && kube.Ready(p) {
			agents[p.Spec.NodeName] = true
		}
	}
	for _, n := range r.each() {
		switch {
		case !agents[n.Name]:
		case fixes[n.State] != "":
			with = append(with, n.Name)
		default:
			without = append(without, n.Name)
		}
	}
	all := slices.Concat(with, without)
	return all[:min(most, len(all))]
}

// object adds the answer of the API server to a request.
func (b *bundle) object(ctx context.Context, name string, request *rest.Request) {
	var object any
	if err := getJSON(ctx, request, &object); err != nil {
		b.lacks(name, err)
		return
	}
	strip(object)
	var pretty bytes.Buffer
	_ = printJSON(&pretty, object) // what was decoded can be encoded
	b.add(name, pretty.Bytes())
}

// logs adds the logs of the managers, and of the agents of some nodes.
func (b *bundle) logs(ctx context.Context, a *apis, nodes []string) {
	var pods corev1.PodList
	if err := list(ctx, a.core, "pods", a.home(ctx), &pods); err != nil {
		b.lacks("logs", err)
		return
	}
	for _, p := range pods.Items {
		if app := p.Labels[appLabel]; app == agentName && !slices.Contains(nodes, p.Spec.NodeName) {
			continue
		}
		for _, c := range p.Spec.Containers {
			for _, previous := range []bool{true, false} {
				b.log(ctx, a, &p, c.Name, previous)
			}
		}
	}
}

func (b *bundle) log(ctx context.Context, a *apis, p *corev1.Pod, container string, previous bool) {
	name := "logs/" + p.Name + "-" + container + ".txt"
	if previous {
		name = strings.Replace(name, ".txt", "-previous.txt", 1)
	}
	text, err := a.core.Get().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("log").
		Param("container", container).Param("previous", fmt.Sprint(previous)).
		Param("tailLines", fmt.Sprint(maxLines)).Param("limitBytes", fmt.Sprint(b.maxFile)).Do(ctx).Raw()
	switch {
	case err == nil:
		b.add(name, text)
	case !previous: // most containers were never started again
		b.lacks(name, err)
	}
}

func (b *bundle) agent(ctx context.Context, a *apis, node string) {
	dir := "nodes/" + filepath.Base(node) + "/"
	b.answers(ctx, a, node, dir, metricsPort, map[string]string{"metrics.txt": "/metrics"})
	b.answers(ctx, a, node, dir, agentPort, map[string]string{
		"node.json": "/node", "pods.json": "/pods", "cpus.json": "/cpus", "journal.jsonl": "/journal",
	})
}

// answers adds what the agent of a node answers at a port, each path as a file.
func (b *bundle) answers(ctx context.Context, a *apis, node, dir string, port int, paths map[string]string) {
	address, stop, err := forwardToNode(ctx, a, node, port)
	if err != nil {
		b.lacks(fmt.Sprintf("%s port %d", dir, port), err)
		return
	}
	defer stop()
	inOrder(paths, func(name, path string) {
		body, err := openAgent(ctx, address, path, nil)
		if err != nil {
			b.lacks(dir+name, err)
			return
		}
		defer body.Close()
		var text []byte
		if path == "/journal" { // what is compressed cannot be looked through for secrets
			end := &tail{most: b.maxFile}
			err = journal.Unpack(end, body)
			if text = slices.Concat(end.lines...); end.cut > 0 {
				b.lacks(dir+name, fmt.Errorf("its first %d bytes: a file holds %d at most, from a whole round on", end.cut,
					b.maxFile))
			}
		} else {
			text, err = io.ReadAll(io.LimitReader(body, 2*int64(b.maxFile)))
		}
		if err != nil {
			b.lacks(dir+name, err)
		}
		b.add(dir+name, text)
	})
}

// tail keeps the last lines of a journal, from a line that is whole on. All sizes are in bytes.
type tail struct {
	most, size, cut int // that are kept at most, that are kept, and that were cut
	lines           [][]byte
}

// Write takes one line.
func (t *tail) Write(line []byte) (int, error) {
	t.lines, t.size = append(t.lines, bytes.Clone(line)), t.size+len(line)
	for t.size > t.most || t.size > 0 && !bytes.Contains(t.lines[0], []byte(`"Format":`)) {
		first := len(t.lines[0])
		t.lines, t.size, t.cut = t.lines[1:], t.size-first, t.cut+first
	}
	return len(line), nil
}
