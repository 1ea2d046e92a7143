package main

import (
	"io"
	"net/http"
)

// servePeers is a cluster with the objects of Koordinator, Crane and cpu-share-syncer. It has no NodeSLOs and no
// AvoidanceActions, and its Nodes come in two pages.
func servePeers(w http.ResponseWriter, r *http.Request) {
	at := r.URL.Path
	if token := r.URL.Query().Get("continue"); token != "" {
		at += "?" + token
	}
	answer, found := map[string]string{
		"/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config": `{
			"metadata":{"name":"slo-controller-config"},
			"data":{"colocation-config":"{\"enable\":true,\"cpuReclaimThresholdPercent\":55}"}}`,
		"/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles": `{"items":[]}`,
		"/api/v1/nodes": `{"metadata":{"continue":"second"},"items":[{"metadata":{"name":"n1"}}]}`,
		"/api/v1/nodes?second": `{"metadata":{},"items":[{"metadata":{"name":"n2",
			"labels":{"node.koordinator.sh/cpu-reclaim-ratio":"0.4"}}}]}`,
		"/apis/ensurance.crane.io/v1alpha1/nodeqoss": `{"items":[{"metadata":{"name":"q"},"spec":{"rules":[
			{"actionName":"a","metricRule":{"name":"cpu_total_utilization","value":"80"}}]}}]}`,
		"/apis/ensurance.crane.io/v1alpha1/podqoss": `{"items":[]}`,
		"/apis/apps/v1/daemonsets": `{"items":[
			{"metadata":{"name":"agent"},"spec":{"template":{"spec":{"containers":[
				{"image":"crane-agent:v1","args":["--node-resource-reserved=cpu=40%"]}]}}}},
			{"metadata":{"name":"cpu-share-syncer"},"spec":{"template":{"spec":{"nodeSelector":{"pool":"video"}}}}}]}`,
		"/api/v1/pods": `{"items":[{"metadata":{"name":"p","annotations":{"iqiyi.com/cpu-share":"4096"}}}]}`,
	}[at]
	if !found {
		http.Error(w, `{"kind":"Status","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}
