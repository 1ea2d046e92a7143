package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/waterline-io/waterline/test/bed/cluster"
)

// registry writes objects directly into etcd, in the API server's own form. To make 150,000 running pods through the
// API takes two requests for each. In etcd they exist within seconds, and the API server learns of them like of any
// others.
type registry struct {
	t      testing.TB
	client *http.Client
}

// writersAtOnce is the number of concurrent requests to etcd.
const writersAtOnce = 16

func newRegistry(t testing.TB) *registry {
	transport := &http.Transport{DialContext: bed.Dial, MaxIdleConnsPerHost: writersAtOnce}
	t.Cleanup(transport.CloseIdleConnections)
	return &registry{t, &http.Client{Transport: transport}}
}

// entry is an object with its kind and version, and its key without the common prefix.
type entry struct {
	key    string
	object runtime.Object
}

// make makes objects, each in its own revision. If many had the same one, watchers were seen to miss some.
func (r *registry) make(entries []entry) error {
	var writers sync.WaitGroup
	errs := make([]error, writersAtOnce)
	for w := range errs {
		writers.Go(func() {
			for i := w; i < len(entries) && errs[w] == nil; i += len(errs) {
				errs[w] = r.put(entries[i : i+1])
			}
		})
	}
	writers.Wait()
	return errors.Join(errs...)
}

// put writes up to 128 objects at once, new or existing.
func (r *registry) put(entries []entry) error {
	type pair struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put pair `json:"requestPut"`
	}
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var operations []operation
	for _, e := range entries {
		var value bytes.Buffer
		if err := encoder.Encode(e.object, &value); err != nil {
			return err
		}
		operations = append(operations, operation{pair{[]byte("/registry/" + e.key), value.Bytes()}})
	}
	return r.call("txn", map[string]any{"success": operations})
}

// remove deletes all objects whose keys have this prefix.
func (r *registry) remove(prefix string) {
	r.t.Helper()
	from, to := []byte("/registry/"+prefix), []byte("/registry/"+prefix)
	to[len(to)-1]++
	if err := r.call("deleterange", map[string]any{"key": from, "range_end": to}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registry) call(what string, request any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	response, err := r.client.Post(fmt.Sprintf("http://%s/v3/kv/%s", cluster.EtcdAddress, what), "application/json",
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd, %s: %s: %s, %w", what, response.Status, answer, err)
	}
	return nil
}
