package fakerm

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

const root = "/ws/v1/cluster"

// ServeHTTP serves the web services of the ResourceManager.
func (r *RM) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	faults, silence := r.faults, r.silence
	r.count.Requests++
	if req.Method == http.MethodPost {
		r.count.Posts++
	}
	r.mu.Unlock()
	w.Header().Set("X-Content-Type-Options", "nosniff")
	path, ours := strings.CutPrefix(req.URL.Path, root)
	switch {
	case faults.Silent:
		select {
		case <-req.Context().Done():
		case <-silence:
		}
		panic(http.ErrAbortHandler)
	case faults.Kerberos:
		w.Header().Set("WWW-Authenticate", "Negotiate")
		w.WriteHeader(http.StatusUnauthorized)
	case faults.Status != 0:
		w.WriteHeader(faults.Status)
	case faults.Standby && path != "/info":
		w.Header().Set("Location", "http://other.bed:8088"+req.URL.Path)
		w.Header().Set("Content-Type", "text/plain;charset=utf-8")
		w.WriteHeader(http.StatusTemporaryRedirect)
		fmt.Fprintf(w, "This is standby RM. The redirect url is: %s\n", req.URL.Path)
	case !ours:
		http.NotFound(w, req)
	default:
		r.serve(w, req, path)
	}
}

func (r *RM) serve(w http.ResponseWriter, req *http.Request, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, isNode := strings.CutPrefix(path, "/nodes/")
	switch {
	case req.Method == http.MethodGet && path == "/info":
		answer(w, map[string]any{"clusterInfo": r.info()})
	case req.Method == http.MethodGet && path == "/nodes":
		r.serveNodes(w, req)
	case req.Method == http.MethodGet && path == "/scheduler":
		r.serveScheduler(w)
	case req.Method == http.MethodGet && path == "/get-node-labels":
		r.serveLabels(w)
	case req.Method == http.MethodGet && path == "/get-node-to-labels":
		r.serveNodeLabels(w)
	case req.Method == http.MethodPost && path == "/add-node-labels":
		r.addLabels(w, req)
	case req.Method == http.MethodPost && path == "/replace-node-to-labels":
		r.replaceLabels(w, req)
	case req.Method == http.MethodGet && isNode:
		if n := r.known(w, id); n != nil {
			answer(w, map[string]any{"node": r.show(n, time.Now())})
		}
	case req.Method == http.MethodPost && isNode && strings.HasSuffix(id, "/resource"):
		r.resize(w, req, strings.TrimSuffix(id, "/resource"))
	default:
		http.NotFound(w, req)
	}
}

// answer writes an answer as JSON.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// refuse answers with a Java exception.
func refuse(w http.ResponseWriter, status int, class, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(status)
	name := class[strings.LastIndexByte(class, '.')+1:]
	_ = json.NewEncoder(w).Encode(map[string]any{"RemoteException": map[string]string{
		"exception": name, "message": fmt.Sprintf(format, args...), "javaClassName": class,
	}})
}

const (
	badRequest = "org.apache.hadoop.yarn.webapp.BadRequestException"
	notFound   = "org.apache.hadoop.yarn.webapp.NotFoundException"
	badArgs    = "java.lang.IllegalArgumentException"
)

// known returns the node with an id. If there is none, it answers that, and returns nil.
func (r *RM) known(w http.ResponseWriter, id string) *node {
	if _, _, err := net.SplitHostPort(id); err != nil {
		refuse(w, http.StatusBadRequest, badArgs, "Invalid NodeId [%s]. Expected host:port", id)
		return nil
	}
	if n := r.nodes[id]; n != nil && n.state != "" {
		return n
	}
	refuse(w, http.StatusNotFound, notFound, "nodeId, %s, is not found", id)
	return nil
}

func (r *RM) serveNodes(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	var states []string
	if list := req.URL.Query().Get("states"); list != "" {
		states = strings.Split(list, ",")
	}
	var all []nodeJSON
	for _, id := range slices.Sorted(maps.Keys(r.nodes)) {
		n := r.nodes[id]
		if n.state != "" && (states == nil || slices.Contains(states, n.state)) {
			all = append(all, r.show(n, now))
		}
	}
	if len(all) == 0 {
		answer(w, map[string]any{"nodes": map[string]any{}})
		return
	}
	answer(w, map[string]any{"nodes": map[string]any{"node": all}})
}

func (r *RM) serveLabels(w http.ResponseWriter) {
	var all []labelJSON
	for _, name := range slices.Sorted(maps.Keys(r.labels)) {
		all = append(all, labelJSON{Name: name, Exclusive: r.labels[name], Partition: &partitionJSON{amount(Size{})}})
	}
	if len(all) == 0 {
		answer(w, map[string]any{})
		return
	}
	answer(w, map[string]any{"nodeLabelInfo": all})
}

func (r *RM) serveNodeLabels(w http.ResponseWriter) {
	type value struct {
		Labels []labelJSON `json:"nodeLabelInfo"`
	}
	type entry struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	var all []entry
	for _, id := range slices.Sorted(maps.Keys(r.hosts)) {
		name := r.hosts[id]
		all = append(all, entry{id, value{[]labelJSON{{Name: name, Exclusive: r.labels[name]}}}})
	}
	if len(all) == 0 {
		answer(w, map[string]any{})
		return
	}
	answer(w, map[string]any{"nodeToLabels": map[string]any{"entry": all}})
}

func (r *RM) addLabels(w http.ResponseWriter, req *http.Request) {
	var body struct {
		Labels []labelJSON `json:"nodeLabelInfo"`
	}
	switch err := json.NewDecoder(req.Body).Decode(&body); {
	case err != nil:
		refuse(w, http.StatusBadRequest, badRequest, "%v", err)
		return
	case r.faults.NoLabels: // CommonNodeLabelsManager.NODE_LABELS_NOT_ENABLED_ERR of 3.5.0; not recorded
		refuse(w, http.StatusBadRequest, badRequest,
			"Node-label-based scheduling is disabled. Please check yarn.node-labels.enabled")
		return
	}
	for _, l := range body.Labels {
		if exclusive, found := r.labels[l.Name]; found && exclusive != l.Exclusive {
			refuse(w, http.StatusBadRequest, badRequest, "Exclusivity cannot be modified for an existing label with : "+
				"<%s:exclusivity=%t>", l.Name, l.Exclusive)
			return
		}
	}
	for _, l := range body.Labels {
		r.labels[l.Name] = l.Exclusive
	}
}

func (r *RM) replaceLabels(w http.ResponseWriter, req *http.Request) {
	var body struct {
		Nodes []struct {
			ID     string   `json:"nodeId"`
			Labels []string `json:"labels"`
		} `json:"nodeToLabels"`
	}
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, badRequest, "%v", err)
		return
	}
	for _, n := range body.Nodes {
		for _, label := range n.Labels {
			if _, found := r.labels[label]; !found {
				refuse(w, http.StatusBadRequest, badRequest, "Not all labels being replaced contained by known label "+
					"collections, please check, new labels=[%s]", label)
				return
			}
		}
	}
	for _, n := range body.Nodes {
		r.setLabel(strings.ToLower(n.ID), strings.Join(n.Labels, ","))
	}
}

func (r *RM) resize(w http.ResponseWriter, req *http.Request, id string) {
	var body struct {
		Resource struct {
			Memory int64 `json:"memory"`
			VCores int64 `json:"vCores"`
		} `json:"resource"`
		Timeout int64 `json:"overCommitTimeout"`
	}
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, badRequest, "%v", err)
		return
	}
	n := r.known(w, id)
	if n == nil {
		return
	}
	to := Size{body.Resource.Memory, body.Resource.VCores}
	r.set(n, to, time.Duration(body.Timeout)*time.Millisecond)
	answer(w, map[string]any{"resourceInfo": amount(n.total)})
}

// set gives a node a new total.
func (r *RM) set(n *node, to Size, within time.Duration) {
	if to == n.total || r.faults.NoEffect {
		return
	}
	now := time.Now()
	r.count.Resizes++
	n.set, n.last = now, n.set
	n.total, n.told, n.unsettled = to, now.Add(r.o.Heartbeat), now.Add(r.o.Unsettled)
	n.deadline = now.Add(within)
	r.tick(n, now) // a deadline of 0 kills at once
}

// NodeManager returns the web services of the NodeManager of a host, which registers under another host if as is set.
func (r *RM) NodeManager(host, as string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := r.nodes[idOf(host)]
		switch {
		case n == nil || !n.up:
			panic(http.ErrAbortHandler)
		case req.URL.Path == "/ws/v1/node":
			name := host
			if as != "" {
				name = as
			}
			answer(w, map[string]any{"nodeInfo": nodeInfo(n, name)})
		case req.URL.Path == "/ws/v1/node/containers":
			r.serveContainers(w, n)
		default:
			http.NotFound(w, req)
		}
	})
}

func (r *RM) serveContainers(w http.ResponseWriter, n *node) {
	if len(n.containers) == 0 {
		answer(w, map[string]any{"containers": map[string]any{}})
		return
	}
	var all []containerJSON
	for i := range n.containers {
		all = append(all, r.containerInfo(n, i))
	}
	answer(w, map[string]any{"containers": map[string]any{"container": all}})
}
