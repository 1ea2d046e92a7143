package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// planted is in every secret that TestBundle plants.
const planted = "hunter2"

// plantedPod is a pod with secrets where users have them.
const plantedPod = `{"metadata":{"name":"waterline-manager-a","namespace":"waterline-system","labels":{"app.kubernetes.io/name":"waterline-manager"},
	"managedFields":[{"manager":"hunter2"}],"annotations":{"waterline.io/cpu-share":"1024",
	"kubectl.kubernetes.io/last-applied-configuration":"{\"env\":[{\"name\":\"A\",\"value\":\"hunter2\"}]}"}},
	"spec":{"automountServiceAccountToken":true,"volumes":[{"name":"v","secret":{"secretName":"cert"}}],
	"containers":[{"name":"manager","args":["--leader=true","--token=hunter2"],
	"env":[{"name":"PASSWORD","value":"hunter2"},
	{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}]}]},
	"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`

// plantedLog is a log with secrets as programs write them.
const plantedLog = "level=INFO msg=\"leads\"\nAuthorization: Bearer hunter2hunter2\npassword=hunter2 user=x\n" +
	"dial https://admin:hunter2@rm1:8088/ws\n{\"client_secret\": \"hunter2\", \"n\": 1}\n" +
	"jwt eyJhbGciOiJIUzI1NiJ9.hunter2hunter2.hunter2\n" +
	"-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\n"

// TestBundle checks that a bundle has what RBAC allows, says what is missing, asks for no Secret, and has no planted
// secret in any file.
func TestBundle(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		list := func(kind, version, items string) {
			_, _ = io.WriteString(w, `{"kind":"`+kind+`","apiVersion":"`+version+`","items":[`+items+`]}`)
		}
		switch last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; last {
		case "version":
			_, _ = io.WriteString(w, `{"gitVersion":"v1.36.3"}`)
		case "nodes":
			list("NodeList", "v1", `{"metadata":{"name":"n1"}}`)
		case "pods":
			list("PodList", "v1", plantedPod)
		case "log":
			if r.FormValue("previous") == "true" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			_, _ = io.WriteString(w, plantedLog)
		case "events":
			list("EventList", "v1", `{"metadata":{"name":"e"},"message":"token: hunter2"}`)
		case "colocationpolicies":
			list("ColocationPolicyList", "waterline.io/v1alpha1", `{"metadata":{"name":"web"},"spec":{}}`)
		case "workerpools":
			list("WorkerPoolList", "waterline.io/v1alpha1", "")
		case "nodereports":
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodereports is forbidden","code":403}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	a, err := connectTo(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	b := newBundle(&archive, noon)
	b.collect(t.Context(), a, []string{"n1"})
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &archive)
	for name, text := range files {
		if strings.Contains(text, planted) {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON:\n%s", name, text)
		}
	}
	for name, want := range map[string][]string{
		"pods.json": {`"waterline.io/cpu-share": "1024"`, `"fieldPath": "spec.nodeName"`, `"--leader=true"`, `"value": "HIDDEN"`,
			`"automountServiceAccountToken": true`},
		"logs/waterline-manager-a-manager.txt": {"msg=\"leads\"", "Bearer HIDDEN", "password=HIDDEN user=x",
			"admin:HIDDENrm1", `"client_secret": "HIDDEN", "n": 1`},
		"versions.txt":    {"commit"},
		"kubernetes.json": {"v1.36.3"},
		"policies.json":   {`"web"`},
		"missing.txt": {"nodereports.json: ", "forbidden", "status.txt: listing nodereports", "daemonsets.json: ",
			"nodes/n1/ port 9465: "},
	} {
		for _, w := range want {
			if !strings.Contains(files[name], w) {
				t.Errorf("%s lacks %s:\n%s", name, w, files[name])
			}
		}
	}
	if i := slices.IndexFunc(asked, func(path string) bool {
		return strings.Contains(path, "secrets") || strings.Contains(path, "configmaps")
	}); i >= 0 {
		t.Errorf("it read %s", asked[i])
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "waterline-support/")] = string(text)
	}
}

// TestBundleBounds checks that a file and a bundle stay within their bounds, and that what is left out is named.
func TestBundleBounds(t *testing.T) {
	var archive bytes.Buffer
	b := newBundle(&archive, noon)
	b.maxFile, b.maxSize = 1000, 8000
	long := bytes.Repeat([]byte("x\n"), 1000)
	for _, name := range strings.Fields("a b c d e f g h i") {
		b.add(name, long)
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &archive)
	if b.size > 8000+len(files["missing.txt"]) || len(files["a"]) != 1000 || files["i"] != "" {
		t.Errorf("%d bytes, %d of them in a file", b.size, len(files["a"]))
	}
	for _, want := range []string{"a: its first 1000 bytes", "i: the bundle is full"} {
		if !strings.Contains(files["missing.txt"], want) {
			t.Errorf("missing.txt lacks %s:\n%s", want, files["missing.txt"])
		}
	}
}

// TestTail checks that the end of a journal is as long as its bound allows, and begins with a line that needs no other.
func TestTail(t *testing.T) {
	whole, further := `{"Format":1,"Node":1}`+"\n", `{"GoesOn":true,"Node":22}`+"\n"
	text := whole + further + further + whole + further
	last := whole + further
	for most, want := range map[int]string{1000: text, 100: last, len(last): last, 10: ""} {
		l := &tail{most: most}
		for line := range strings.Lines(further + text) {
			if n, err := io.WriteString(l, line); n != len(line) || err != nil || l.size > most {
				t.Fatal(n, l.size, err)
			}
		}
		if got := string(slices.Concat(l.lines...)); got != want || l.cut != len(further+text)-len(want) {
			t.Errorf("%d bytes: %q, and %d were cut", most, got, l.cut)
		}
	}
}
