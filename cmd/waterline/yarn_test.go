package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// serveRM answers as a ResourceManager, with recorded answers of a real one. The first part of the path says how that
// one is:
//
//	bed        as it was recorded
//	good       with nothing wrong
//	standby    beside another one, which is active
//	fair       with another scheduler
//	nowhere    at another address
//	forbidden  with settings that only administrators can read
func serveRM(w http.ResponseWriter, r *http.Request) {
	how, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	recording, found := map[string]string{
		"ws/v1/cluster/info": "info", "ws/v1/cluster/scheduler": "scheduler", "ws/v1/cluster/nodes": "nodes",
		"ws/v1/cluster/get-node-labels": "labels", "conf": "conf",
	}[path]
	// These resolve wherever the test runs.
	edits := []string{`"nodeHostName":"nm1.bed"`, `"nodeHostName":"localhost"`, `"nodeHostName":"nm2.bed"`,
		`"nodeHostName":"127.0.0.1"`}
	switch {
	case how == "standby" && recording == "info":
		recording = "info-standby"
	case how == "fair":
		edits = append(edits, `"capacityScheduler"`, `"fairScheduler"`)
	case how == "forbidden" && recording == "conf":
		recording = "conf-forbidden"
	case how == "good":
		edits = append(edits, `file:///bed/labels`, `hdfs:///yarn/labels`, `authentication.type","value":"simple"`,
			`authentication.type","value":"kerberos"`, `{"properties":[`,
			`{"properties":[{"key":"yarn.resourcemanager.node-labels.am.default-node-label-expression","value":" "},`+
				`{"key":"yarn.log-aggregation-enable","value":"true"},`+
				`{"key":"yarn.nodemanager.log-aggregation.roll-monitoring-interval-seconds","value":"3600"},`)
	}
	if !found || how == "nowhere" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	content, err := os.ReadFile(filepath.Join("../../internal/yarn/testdata/rm", recording+".http"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(content)), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = strings.NewReplacer(edits...).WriteString(w, string(body))
}
