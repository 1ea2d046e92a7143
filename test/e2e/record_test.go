package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
)

// change is one write to an object of the API, as every watcher sees it.
type change struct {
	kind   string // ADDED, MODIFIED or DELETED
	name   string
	object json.RawMessage
}

// record notes all changes of the objects of one kind from now on. The returned function returns them.
func (u user) record(t testing.TB, path string) func() []change {
	t.Helper()
	listed, ok := u.do(t, http.MethodGet, path+"?limit=1", "", "")
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(listed), &list); !ok || err != nil {
		t.Fatalf("listing %s: %v: %.200s", path, err, listed)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		u.host+path+"?watch=1&resourceVersion="+list.Metadata.ResourceVersion, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := u.client.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("watching %s: %v, %v", path, response, err)
	}
	var mu sync.Mutex
	var all []change
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer response.Body.Close()
		for decoder := json.NewDecoder(response.Body); ; {
			var event struct {
				Type   string
				Object json.RawMessage
			}
			if decoder.Decode(&event) != nil {
				return // the end
			}
			var object struct{ Metadata struct{ Name string } }
			if err := json.Unmarshal(event.Object, &object); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			all = append(all, change{event.Type, object.Metadata.Name, event.Object})
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() []change {
		mu.Lock()
		defer mu.Unlock()
		return all[:len(all):len(all)]
	}
}
