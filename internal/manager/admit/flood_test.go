package admit

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// unfinished is the body of a request that never ends. It counts the bodies that somebody reads.
type unfinished struct {
	reading *atomic.Int64
	until   chan struct{}
}

func (u unfinished) Read([]byte) (int, error) {
	u.reading.Add(1)
	<-u.until
	return 0, io.ErrUnexpectedEOF
}

// TestFlood sends 200 large and 200 small requests that never end. A few of each are read, and the others are refused
// after a while. While only large ones hang, pods of the usual size are admitted as ever.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{})
		end := make(chan struct{})
		var wg sync.WaitGroup
		flood := func(length int64) (reading, refused *atomic.Int64) {
			reading, refused = &atomic.Int64{}, &atomic.Int64{}
			for range 200 {
				wg.Go(func() {
					r := httptest.NewRequest(http.MethodPost, Path, unfinished{reading, end})
					r.Header.Set("Content-Type", "application/json")
					r.ContentLength = length
					to := httptest.NewRecorder()
					if w.ServeHTTP(to, r); to.Code == http.StatusTooManyRequests {
						refused.Add(1)
					}
				})
			}
			return reading, refused
		}
		large, refused := flood(-1)
		review, err := json.Marshal(request(admissionv1.Create, batchPod, "{}"))
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			r := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(review))
			r.Header.Set("Content-Type", "application/json")
			to := httptest.NewRecorder()
			if w.ServeHTTP(to, r); to.Code != http.StatusOK {
				t.Fatalf("a pod while large requests hang: %d %s", to.Code, to.Body)
			}
		}
		small, others := flood(1000)
		time.Sleep(2 * waitWithin)
		synctest.Wait()
		if large.Load() != maxLarge || refused.Load() != 200-maxLarge {
			t.Errorf("%d large requests are read, %d refused", large.Load(), refused.Load())
		}
		if small.Load() != maxSmall || others.Load() != 200-maxSmall {
			t.Errorf("%d small requests are read, %d refused", small.Load(), others.Load())
		}
		close(end)
		wg.Wait()
		if len(w.small)+len(w.large) != 0 {
			t.Errorf("%d and %d requests are in work for ever", len(w.small), len(w.large))
		}
	})
}

// TestUnfinished has a request of a real connection whose body never ends: it is given up.
func TestUnfinished(t *testing.T) {
	w := New(Options{})
	s := httptest.NewServer(w)
	defer s.Close()
	body, more := io.Pipe()
	defer more.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+Path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if answer, err := s.Client().Do(r); err == nil {
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("status %d", answer.StatusCode)
		}
	}
}
