package yarn_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/bed/yarn"
)

// recording returns an answer of a real ResourceManager, and its body.
func recording(t *testing.T, name string) (*http.Response, string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../../internal/yarn/testdata/rm", name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(content)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

// recorded returns a client of a server with recorded answers, by method and path, one after the other; the last is
// repeated. sent are the requests so far.
func recorded(t *testing.T, answers map[string][]string) (rm *client.RM, sent *[]string) {
	sent = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/ws/v1/cluster")
		*sent = append(*sent, strings.TrimSpace(key+" "+string(body)))
		names := answers[key]
		if len(names) == 0 {
			t.Errorf("unexpected request %s", key)
			w.WriteHeader(http.StatusTeapot)
			return
		}
		answers[key] = names[min(1, len(names)-1):]
		answer, text := recording(t, names[0])
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		w.WriteHeader(answer.StatusCode)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	rm, err := client.NewRM([]string{s.URL}, client.HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return rm, sent
}

func with(sent []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(sent), func(s string) bool { return !strings.HasPrefix(s, prefix) })
}

func TestApps(t *testing.T) {
	_, made := recording(t, "new-app")
	id := regexp.MustCompile("application_[0-9]+_[0-9]+").FindString(made)
	rm, sent := recorded(t, map[string][]string{
		"GET /apps": {"apps", "apps", "apps-none"}, "GET /apps/" + id: {"node-unknown", "app", "app", "app", "app-killed"},
		"POST /apps/new-application": {"new-app"}, "POST /apps": {"submitted"}, "PUT /apps/" + id + "/state": {"killing"},
	})
	app, err := yarn.Submit(t.Context(), rm, yarn.Submission{
		Name: "sleep", Queue: "default", Type: "TEST", Command: "exec sleep 300", MaxAttempts: 1,
		Master: client.Resource{MemoryMiB: 256, VCores: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := yarn.App{
		ID: id, Name: "sleep", User: "root", Queue: "root.default", Type: "TEST", State: yarn.AppAccepted,
		FinalStatus: "UNDEFINED", Diagnostics: app.Diagnostics, Started: app.Started, MasterNode: "nm1.bed:45454",
		Containers: 1, Allocated: client.Resource{MemoryMiB: 256, VCores: 1},
	}
	if diff := cmp.Diff(want, app); diff != "" || app.Started.Year() != 2026 || app.Diagnostics == "" {
		t.Errorf("submitted (-want +got):\n%s\n%+v", diff, app)
	}
	submitted := `POST /apps {"application-id":"` + id + `","application-name":"sleep","queue":"default",` +
		`"application-type":"TEST","max-app-attempts":1,"resource":{"memory":256,"vCores":1},` +
		`"am-container-spec":{"commands":{"command":"exec sleep 300"}}}`
	if got := with(*sent, "POST /apps {"); !slices.Equal(got, []string{submitted}) {
		t.Errorf("sent %q, not %s", got, submitted)
	}
	apps, err := yarn.Apps(t.Context(), rm, yarn.AppAccepted)
	if err != nil || len(apps) != 1 || !cmp.Equal(apps[0], want) {
		t.Errorf("applications: %+v, %v", apps, err)
	}
	if none, err := yarn.Apps(t.Context(), rm, yarn.AppKilled); err != nil || len(none) != 0 {
		t.Errorf("killed applications: %v, %v", none, err)
	}
	if none, err := yarn.Apps(t.Context(), rm); err != nil || len(none) != 0 {
		t.Errorf("no applications: %v, %v", none, err)
	}
	app, err = yarn.Kill(t.Context(), rm, id)
	if err != nil || app.State != yarn.AppKilled || app.Containers != 0 || app.Finished.Before(app.Started) {
		t.Errorf("killed: %+v, %v", app, err)
	}
	if _, err := yarn.Kill(t.Context(), rm, id); err != nil || len(with(*sent, "PUT")) != 1 {
		t.Errorf("killed twice: %q, %v", *sent, err)
	}
}

func TestKillWithoutEffect(t *testing.T) {
	rm, _ := recorded(t, map[string][]string{"GET /apps/a": {"app"}, "PUT /apps/a/state": {"killing"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var none *client.NoEffectError
	if _, err := yarn.Kill(ctx, rm, "a"); !errors.As(err, &none) || none.Have != "ACCEPTED" {
		t.Errorf("%v", err)
	}
}

func TestResize(t *testing.T) {
	const id, get, post = "nm1.bed:45454", "GET /nodes/nm1.bed:45454", "POST /nodes/nm1.bed:45454/resource"
	rm, sent := recorded(t, map[string][]string{get: {"node", "node", "node-overcommitted"}, post: {"resized"}})
	small := client.Resource{MemoryMiB: 128, VCores: 1}
	node, err := yarn.Resize(t.Context(), rm, id, small, 90*time.Second)
	if err != nil || node.Total != small || node.Used != (client.Resource{MemoryMiB: 256, VCores: 1}) {
		t.Fatalf("%+v, %v", node, err)
	}
	// It is there already.
	if _, err := yarn.Resize(t.Context(), rm, id, small, 0); err != nil || len(with(*sent, "POST")) != 1 {
		t.Errorf("sent again: %q, %v", *sent, err)
	}
}

func TestResizeWithoutEffect(t *testing.T) {
	rm, _ := recorded(t, map[string][]string{
		"GET /nodes/nm1.bed:45454": {"node"}, "POST /nodes/nm1.bed:45454/resource": {"resized"},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := yarn.Resize(ctx, rm, "nm1.bed:45454", client.Resource{MemoryMiB: 128, VCores: 1}, time.Second)
	var none *client.NoEffectError
	if !errors.As(err, &none) {
		t.Fatalf("%v", err)
	}
	want := client.NoEffectError{
		What: "the total of node nm1.bed:45454", Want: "128MiB,1vcores", Have: "2048MiB,4vcores in state RUNNING",
	}
	if *none != want {
		t.Errorf("%+v", none)
	}
}
