package yarn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
)

// silent returns the base address of a server that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

// TestSilentStandby asks a pair of ResourceManagers, one of which accepts and never answers. The other one is found,
// and asked from then on, whatever their order.
func TestSilentStandby(t *testing.T) {
	active := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/info") {
			fmt.Fprint(w, `{"clusterInfo":{"state":"STARTED","haState":"ACTIVE","startedOn":1}}`)
			return
		}
		fmt.Fprint(w, `{"nodes":{"node":{"id":"nm1:45454"}}}`)
	}))
	defer active.Close()
	dead := silent(t)
	for _, order := range [][]string{{active.URL, dead}, {dead, active.URL}} {
		rm, err := NewRM(order, HTTPOptions{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		info, err := rm.Active(t.Context())
		if err != nil || info.Address != active.URL {
			t.Errorf("%v: %+v, %v", order, info, err)
			continue
		}
		if nodes, err := rm.Nodes(t.Context()); err != nil || len(nodes) != 1 {
			t.Errorf("%v: %v, %v", order, nodes, err)
		}
	}
}

// TestSilentServer has a call of several servers, one of which never answers. The call succeeds within the time that
// its caller has, and begins with the other server from then on.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servers{all: []string{"dead", "other", "active"}, pause: pause}
		var asked []string
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			err := s.try(ctx, func(ctx context.Context, address string) error {
				asked = append(asked, address)
				switch address {
				case "dead":
					<-ctx.Done()
					return ctx.Err()
				case "other":
					return ErrStandby
				}
				return ctx.Err()
			}, func(error) bool { return false })
			if cancel(); err != nil {
				t.Error(err)
			}
		}
		if want := []string{"dead", "other", "active", "active"}; !slices.Equal(asked, want) {
			t.Errorf("%v, want %v", asked, want)
		}
	})
}

// TestSilentKDC gets tickets from two KDCs, the first of which never replies. The second is asked after a while, and
// first from then on.
func TestSilentKDC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKDC(t)
		c := k.client(t)
		c.config.Realms[0].KDC = []string{"dead:88", "good:88"}
		asked := map[string]int{}
		c.send = func(ctx context.Context, address string, request []byte) ([]byte, error) {
			c := asked
			if c[address]++; address == "dead:88" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return k.reply(request)
		}
		for _, service := range []string{"HTTP/127.0.0.1", "rm/rm1.bed"} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := c.of(ctx, service)
			if cancel(); err != nil {
				t.Error(err)
			}
		}
		if asked["dead:88"] != 1 || asked["good:88"] != 4 { // two for the login, and a ticket of each service
			t.Errorf("requests: %v", asked)
		}
	})
}

// TestWrongKeyIsNotTriedAgain has a keytab with a wrong key. Clients that share a caller send it to the KDC once an
// hour, however often they are used, so that the KDC does not lock the principal. Another keytab counts at once.
func TestWrongKeyIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKDC(t)
		shared, err := Auth{Kerberos: kerberos(t, "waterline", "guessed")}.Shared()
		if err != nil {
			t.Fatal(err)
		}
		var requests []time.Time
		shared.shared.send = func(_ context.Context, _ string, request []byte) ([]byte, error) {
			requests = append(requests, time.Now())
			return k.reply(request)
		}
		for range 90 * 60 / 2 { // an hour and a half
			for range 2 { // two clients
				c, err := shared.tickets()
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.of(t.Context(), "HTTP/127.0.0.1")
				var failed *KerberosError
				if !errors.As(err, &failed) {
					t.Fatal(err)
				}
				matches(t, err, "export the keytab again")
			}
			time.Sleep(2 * time.Second)
		}
		if len(requests) != 4 { // a login has two requests, and the second has the proof
			t.Errorf("%d requests to the KDC: %v", len(requests), requests)
		}
		if _, err := k.client(t).of(t.Context(), "HTTP/127.0.0.1"); err != nil {
			t.Errorf("another keytab: %v", err)
		}
	})
}

// TestWrongKeyOfSeveralClusters has the same wrong key in the Secrets of six clusters, whose clients are also made anew
// again and again, as after edits. The KDC gets one login an hour. Another key counts at once.
func TestWrongKeyOfSeveralClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKDC(t)
		var logins Logins
		requests := 0
		wrong, right := kerberos(t, "waterline", "guessed"), kerberos(t, "waterline", "secret of waterline")
		wrong.Logins, right.Logins = &logins, &logins
		ask := func(who *Kerberos) error {
			c := k.tickets(t, who)
			c.send = func(_ context.Context, _ string, request []byte) ([]byte, error) {
				time.Sleep(100 * time.Millisecond)
				requests++
				return k.reply(request)
			}
			_, err := c.of(t.Context(), "HTTP/127.0.0.1")
			return err
		}
		for range 90 { // minutes
			var clusters errgroup.Group
			for range 6 {
				clusters.Go(func() error {
					var failed *KerberosError
					if err := ask(wrong); !errors.As(err, &failed) {
						t.Errorf("a wrong key: %v", err)
					}
					return nil
				})
			}
			_ = clusters.Wait()
			time.Sleep(time.Minute)
		}
		if requests != 4 { // a login has two
			t.Errorf("%d requests to the KDC, want 4", requests)
		}
		if err := ask(right); err != nil {
			t.Errorf("the right key: %v", err)
		}
		if len(logins.all) != 1 {
			t.Errorf("%d callers are remembered, want the refused one", len(logins.all))
		}
		time.Sleep(time.Hour)
		if err := ask(right); err != nil || len(logins.all) != 0 {
			t.Errorf("%d callers are remembered after their time: %v", len(logins.all), err)
		}
	})
}
