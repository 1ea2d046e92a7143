package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
)

// serveCluster answers as an API server whose namespaces have limits and quotas of all kinds.
func serveCluster(w http.ResponseWriter, r *http.Request) {
	const limited = `{"spec":{"limits":[{"type":"Container","max":{"cpu":"2"},"default":{"cpu":"2"}}]},"metadata":{"name":"limits","namespace":`
	const counted = `"spec":{"hard":{"requests.cpu":"4","limits.memory":"8Gi"}}}`
	answer, found := map[string]string{
		"/api/v1/limitranges": `{"kind":"LimitRangeList","apiVersion":"v1","items":[` + limited + `"shop"}},` + limited + `"quiet"}},
			{"metadata":{"name":"defaults","namespace":"fine"},"spec":{"limits":[{"type":"Container","default":{"cpu":"1"}}]}}]}`,
		"/api/v1/resourcequotas": `{"kind":"ResourceQuotaList","apiVersion":"v1","items":[
			{"metadata":{"name":"compute","namespace":"analytics"},` + counted + `,
			{"metadata":{"name":"compute","namespace":"spark"},` + counted + `,
			{"metadata":{"name":"online","namespace":"fine"},"spec":{"hard":{"requests.cpu":"4"},"scopes":["NotBestEffort"]}}]}`,
		"/api/v1/namespaces/analytics": `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"analytics","labels":{"waterline.io/colocation":"enabled"}}}`,
		"/api/v1/namespaces/fine":      `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"fine","labels":{"waterline.io/colocation":"enabled"}}}`,
		"/api/v1/namespaces/quiet":     `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"quiet"}}`,
		"/api/v1/namespaces/shop":      `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop"}}`,
		"/api/v1/namespaces/spark":     `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"spark"}}`,
		"/api/v1/namespaces/shop/pods?waterline.io/qos=BE": `{"kind":"PodList","apiVersion":"v1","items":[
			{"metadata":{"name":"encode-7","namespace":"shop","labels":{"pod-template-hash":"7"},
				"ownerReferences":[{"kind":"ReplicaSet","name":"encode-7","controller":true}]}},
			{"metadata":{"name":"slipped-0","namespace":"shop","ownerReferences":[{"kind":"StatefulSet","name":"slipped","controller":true}]},
				"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}]}`,
		"/api/v1/namespaces/spark/pods?koordinator.sh/qosClass=BE": `{"kind":"PodList","apiVersion":"v1","items":[
			{"metadata":{"name":"driver","namespace":"spark","ownerReferences":[{"kind":"StatefulSet","name":"driver","controller":true}]}}]}`,
		"/clean/api/v1/limitranges":    `{"kind":"LimitRangeList","apiVersion":"v1","items":[]}`,
		"/clean/api/v1/resourcequotas": `{"kind":"ResourceQuotaList","apiVersion":"v1","items":[]}`,
	}[ask(r)]
	emptied := []string{"/nodes", "/daemonsets", "/horizontalpodautoscalers", "/verticalpodautoscalers"}
	const byPercent = `"target":{"type":"Utilization","averageUtilization":50}`
	for end, answers := range map[string]string{
		"/horizontalpodautoscalers": `{"kind":"HorizontalPodAutoscalerList","apiVersion":"autoscaling/v2","items":[
			{"metadata":{"name":"encode","namespace":"shop"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"encode"},"metrics":[
				{"type":"External","external":{}},{"type":"ContainerResource","containerResource":{"name":"memory",` + byPercent + `}}]}},
			{"metadata":{"name":"web","namespace":"shop"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"web"},"metrics":[
				{"type":"Resource","resource":{"name":"cpu",` + byPercent + `}}]}},
			{"metadata":{"name":"slipped","namespace":"shop"},"spec":{"scaleTargetRef":{"kind":"StatefulSet","name":"slipped"},"metrics":[
				{"type":"Resource","resource":{"name":"cpu",` + byPercent + `}}]}},
			{"metadata":{"name":"set","namespace":"shop"},"spec":{"scaleTargetRef":{"kind":"ReplicaSet","name":"encode-7"},"metrics":[
				{"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}}]}},
			{"metadata":{"name":"driver","namespace":"spark"},"spec":{"scaleTargetRef":{"kind":"StatefulSet","name":"driver"},"metrics":[
				{"type":"Resource","resource":{"name":"cpu","target":{"type":"AverageValue","averageValue":"1"}}}]}}]}`,
		"/verticalpodautoscalers": `{"kind":"VerticalPodAutoscalerList","apiVersion":"autoscaling.k8s.io/v1","items":[
			{"metadata":{"name":"encode","namespace":"shop"},"spec":{"targetRef":{"kind":"Deployment","name":"encode"}}},
			{"metadata":{"name":"set","namespace":"shop"},"spec":{"targetRef":{"kind":"ReplicaSet","name":"encode-7"},
				"updatePolicy":{"updateMode":"Initial"}}},
			{"metadata":{"name":"web","namespace":"shop"},"spec":{"targetRef":{"kind":"Deployment","name":"web"}}},
			{"metadata":{"name":"slipped","namespace":"shop"},"spec":{"targetRef":{"kind":"StatefulSet","name":"slipped"}}},
			{"metadata":{"name":"driver","namespace":"spark"},"spec":{"targetRef":{"kind":"StatefulSet","name":"driver"},
				"updatePolicy":{"updateMode":"InPlaceOrRecreate"}}}]}`,
		"/nodes": `{"kind":"NodeList","apiVersion":"v1","items":[
			{"metadata":{"name":"old"},"status":{"nodeInfo":{"kubeletVersion":"v1.28.3","kernelVersion":"3.10.0-1160.el7.x86_64",
				"containerRuntimeVersion":"containerd://1.6.2"}}},
			{"metadata":{"name":"new","labels":{"waterline.io/opt-out":"true"}},"status":{"nodeInfo":{"kubeletVersion":"v1.36.3","kernelVersion":"6.1.0-40-amd64","containerRuntimeVersion":"containerd://2.4.2"}}}]}`,
		"/nodereports":        `{"kind":"NodeReportList","apiVersion":"waterline.io/v1alpha1","items":[]}`,
		"/colocationpolicies": `{"kind":"ColocationPolicyList","apiVersion":"waterline.io/v1alpha1","items":[]}`,
		"/workerpools":        `{"kind":"WorkerPoolList","apiVersion":"waterline.io/v1alpha1","items":[]}`,
		"/waterline-system/pods": `{"kind":"PodList","apiVersion":"v1","items":[
			{"metadata":{"name":"m","labels":{"app.kubernetes.io/name":"waterline-manager"}},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}]}`,
		"/daemonsets": `{"kind":"DaemonSetList","apiVersion":"apps/v1","items":[
			{"metadata":{"name":"koordlet","namespace":"koordinator-system"},"status":{"desiredNumberScheduled":7}},
			{"metadata":{"name":"agent","namespace":"crane-system"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"reg.example/crane/crane-agent:v1@sha256:00"}]}}},
				"status":{"desiredNumberScheduled":1}},
			{"metadata":{"name":"katalyst-agent","namespace":"k"},"status":{"desiredNumberScheduled":0}},
			{"metadata":{"name":"logs","namespace":"k"},"status":{"desiredNumberScheduled":3}}]}`,
	} {
		if strings.HasSuffix(r.URL.Path, end) && !strings.HasPrefix(r.URL.Path, "/elsewhere") && !found {
			answer, found = answers, true
			if strings.HasPrefix(r.URL.Path, "/clean") && slices.Contains(emptied, end) {
				answer = answers[:strings.Index(answers, "[")] + "[]}"
			}
		}
	}
	if !found && r.URL.Query().Has("labelSelector") {
		answer = `{"kind":"PodList","apiVersion":"v1","items":[]}`
	} else if !found {
		w.WriteHeader(http.StatusNotFound)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

// ask returns what is asked for: a path, with the label selector if there is one.
func ask(r *http.Request) string {
	if labels := r.URL.Query().Get("labelSelector"); labels != "" {
		return r.URL.Path + "?" + labels
	}
	return r.URL.Path
}
