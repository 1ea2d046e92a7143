package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"net/http"
	"sync"
	"testing"

	"github.com/waterline-io/waterline/test/bed/cluster"
)

// registry puts objects where the API server keeps them, in the form in which it does. To make 150,000 pods that run takes two
// requests for each; in etcd they are there in seconds, and the API server learns of them as of any others.
type registry struct {
	t      testing.TB
	client *http.Client
}

// writersAtOnce is how many requests etcd gets at once.
const writersAtOnce = 16

func newRegistry(t testing.TB) *registry {
	transport := &http.Transport{DialContext: bed.Dial, MaxIdleConnsPerHost: writersAtOnce}
	t.Cleanup(transport.CloseIdleConnections)
	return &registry{t, &http.Client{Transport: transport}}
}

// entry is an object, with its kind and version filled in, and its key without the prefix that all have.
type entry struct {
	key    string
	object runtime.Object
}

// put makes objects, or puts others in their place, each by itself: where many have one revision, watchers were seen to miss
// some.
func (r *registry) put(entries []entry) error {
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var writers sync.WaitGroup
	errs := make([]error, writersAtOnce)
	for w := range errs {
		writers.Go(func() {
			for i := w; i < len(entries) && errs[w] == nil; i += len(errs) {
				var value bytes.Buffer
				if errs[w] = encoder.Encode(entries[i].object, &value); errs[w] == nil {
					errs[w] = r.call("put", map[string]any{"key": []byte("/registry/" + entries[i].key), "value": value.Bytes()})
				}
			}
		})
	}
	writers.Wait()
	return errors.Join(errs...)
}

// remove deletes all whose keys begin with this.
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
	response, err := r.client.Post(fmt.Sprintf("http://%s/v3/kv/%s", cluster.EtcdAddress, what), "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd, %s: %s: %s, %w", what, response.Status, answer, err)
	}
	return nil
}
