package pools

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/reach"
	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/yarn"
)

// anywhere is a dialer of tests, whose servers are on this machine.
func anywhere(t *testing.T) *dialer { return dialerOf(t, "127.0.0.0/8", "::1") }

// dialerOf returns the dialer of the namespace yarn, which may reach some addresses; without any, all but special ones.
func dialerOf(t *testing.T, addresses ...string) *dialer {
	t.Helper()
	scopes, err := reach.Scopes([]string{"yarn"}, map[string]reach.Entry{"yarn": {Addresses: addresses}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDialer("yarn", scopes["yarn"])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// secretServer is a server that no pool may reach. It counts connections.
func secretServer(t *testing.T) (address string, connections *atomic.Int32) {
	t.Helper()
	connections = new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the password is swordfish", http.StatusForbidden)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), connections
}

// TestForbiddenAddress has a pool name a server on this machine in each field that leads to a connection. None is made,
// also by a name that resolves to it.
func TestForbiddenAddress(t *testing.T) {
	address, connections := secretServer(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	d := dialerOf(t)
	refused := func(what string, err error) {
		t.Helper()
		if !isNotAllowed(err) || !strings.Contains(err.Error(), "manager.pools.allow.yarn.addresses") {
			t.Errorf("%s: %v", what, err)
		}
	}
	krb5 := "[libdefaults]\n default_realm = EXAMPLE.COM\n[realms]\n EXAMPLE.COM = {\n  kdc = " + address + "\n }\n"
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		spec := &v1alpha1.YARNSpec{
			ResourceManagers: []string{"http://" + host + ":" + port}, ExcludeFile: "x",
			Admins: []string{host + ":" + port}, User: "yarn",
		}
		e, _, err := clusterOf(spec, nil, d)
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.RM.Active(t.Context())
		refused("the ResourceManager "+host, err)
		if reason, _ := causeOf(err); reason != notAllowed {
			t.Errorf("the reason is %s", reason)
		}
		refused("its administration "+host, e.Admin.RefreshNodesGracefully(t.Context(), time.Second))
		e.Locate("w-0", strings.Trim(host, "[]"))
		_, err = e.NM.Info(t.Context(), "http://w-0:"+port)
		refused("a NodeManager "+host, err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Negotiate")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer web.Close()
	webAddress := web.Listener.Addr().String()
	secret := map[string][]byte{yarn.KeyPrincipal: []byte("waterline"), yarn.KeyKeytab: []byte(keytabOf(t, "waterline")),
		yarn.KeyKrb5: []byte(krb5)}
	e, _, err := clusterOf(&v1alpha1.YARNSpec{
		ResourceManagers: []string{"http://" + webAddress}, AuthSecret: &v1alpha1.ObjectReference{Name: "s"},
	}, secret, dialerOf(t, webAddress))
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.RM.Active(t.Context())
	refused("the KDC", err)

	crew := &crewDialer{dialer: d}
	crew.know(map[string]bool{address: true})
	client, err := drain.NewClient(drain.Auth{Dial: crew.dial}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Send(t.Context(), http.MethodGet, "http://"+address, "", nil)
	refused("a worker of Trino", err)
	crew.know(nil)
	_, err = client.Send(t.Context(), http.MethodGet, "http://"+address, "", nil)
	refused("a coordinator", err)
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// TestForeignAnswers asks a server that is no ResourceManager. Nothing of what it says gets into the error, nor where
// it redirects to, and nobody follows. The text of Hadoop's exceptions does.
func TestForeignAnswers(t *testing.T) {
	address, connections := secretServer(t)
	for what, answer := range map[string]func(w http.ResponseWriter){
		"an error": func(w http.ResponseWriter) { http.Error(w, "swordfish", http.StatusInternalServerError) },
		"a page":   func(w http.ResponseWriter) { fmt.Fprint(w, "<html>swordfish</html>") },
		"a redirect": func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://"+address+"/swordfish")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"a page that reloads": func(w http.ResponseWriter) {
			w.Header().Set("Refresh", "3; url=http://swordfish")
			fmt.Fprint(w, "This is standby RM swordfish")
		},
		"other JSON": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"password": "swordfish", "clusterInfo": "swordfish"}`)
		},
		"an error in JSON": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"message": "swordfish", "RemoteException": {"message": "swordfish"}}`)
		},
		"broken JSON": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `swordfish`)
		},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
		e, _, err := clusterOf(&v1alpha1.YARNSpec{
			ResourceManagers: []string{s.URL}, ExcludeFile: "x", User: "yarn",
			Admins: []string{s.Listener.Addr().String()},
		}, nil, anywhere(t))
		if err != nil {
			t.Fatal(err)
		}
		_, active := e.RM.Active(t.Context())
		_, nodes := e.RM.Nodes(t.Context())
		_, labels := e.RM.Labels(t.Context())
		client, err := drain.NewClient(drain.Auth{Dial: anywhere(t).dial}, nil)
		if err != nil {
			t.Fatal(err)
		}
		info := client.JSON(t.Context(), http.MethodGet, s.URL, nil, &struct {
			Cluster struct{ A int } `json:"clusterInfo"`
		}{})
		if active == nil {
			t.Errorf("%s: it counts as a ResourceManager", what)
		}
		for _, err := range []error{active, nodes, labels, info} { // there may be no list, which is none
			if err != nil && strings.Contains(err.Error(), "swordfish") {
				t.Errorf("%s: %v", what, err)
			}
		}
		s.Close()
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"RemoteException": {"exception": "AuthorizationException", "message": "user x may not"}}`)
	}))
	defer s.Close()
	e, _, err := clusterOf(&v1alpha1.YARNSpec{ResourceManagers: []string{s.URL}, User: "yarn"}, nil, anywhere(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.RM.Active(t.Context())
	if err == nil || !strings.Contains(err.Error(), "AuthorizationException: user x may not") {
		t.Errorf("an exception of Hadoop: %v", err)
	}
}

// TestNotAllowed is a round in a namespace for which the administrator has written nothing, beside another one. Nothing
// is connected to, the Secret is not read, and the decision knows no ResourceManager.
func TestNotAllowed(t *testing.T) {
	address, connections := secretServer(t)
	scopes, err := reach.Scopes([]string{"yarn", "other"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, api := apiRound(t, nil)
	k, spec := r.k, r.p.Spec.YARN
	k.c.o.Reach, k.c.o.ExcludeDir, k.status = scopes, t.TempDir(), &v1alpha1.WorkerPoolStatus{}
	spec.ResourceManagers, spec.ExcludeFile = []string{"http://" + address}, "x"
	spec.AuthSecret = &v1alpha1.ObjectReference{Name: "s"}
	r.look(t.Context())
	r.ask(t.Context())
	if r.state.Known || k.observer.Cluster != nil || r.graceful() {
		t.Errorf("%+v, %+v", r.state, k.observer.Cluster)
	}
	for condition, value := range map[string]string{
		v1alpha1.ConditionRMUnreachable: "addresses", v1alpha1.ConditionExcludeFailed: "excludeFiles",
	} {
		p := r.t.all[condition]
		if p.reason != notAllowed || !strings.Contains(p.message(), "manager.pools.allow.yarn."+value) {
			t.Errorf("%s: %+v", condition, p)
		}
	}
	if n := connections.Load(); n != 0 || len(api.asked) != 0 {
		t.Errorf("%d connections, requests to the API server: %q", n, api.asked)
	}
}

// TestForeignExcludeFile has a ResourceManager say that a worker's node is being decommissioned. A pool that may not
// use the exclude file leaves the file as it is, whatever the decision says.
func TestForeignExcludeFile(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	entries := map[string]reach.Entry{"yarn": {Addresses: []string{"127.0.0.1"}}}
	scopes, err := reach.Scopes([]string{"yarn", "other"}, entries)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, content := filepath.Join(dir, "others.xml"), "<hosts>\n  <host><name>node-7</name></host>\n</hosts>\n"
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	r.k.c.o.Reach, r.k.c.o.ExcludeDir, r.p.Spec.YARN.ExcludeFile = scopes, dir, "others.xml"
	spec := &v1alpha1.YARNSpec{ResourceManagers: []string{"http://127.0.0.1:9"}, User: "yarn"}
	c, _, err := clusterOf(spec, nil, anywhere(t))
	if err != nil {
		t.Fatal(err)
	}
	r.k.actor.Use(c)
	r.k.actor.Begin()
	r.in = pool.Input{Now: r.now, Settings: r.settings(), RM: pool.RM{Known: true, Labels: true}, Workers: []pool.Worker{{
		Name: "w", Wanted: true, Room: true,
		Pod:      &pool.Pod{Started: r.now.Add(-time.Minute), Marks: pool.Marks{Registered: true}},
		Managers: []pool.Manager{{ID: "node-7:45454", State: "DECOMMISSIONING", Label: "elastic"}},
	}}}
	step := pool.Next(&r.in)[0]
	if step.Verb != pool.Wait || step.Phase != pool.Draining {
		t.Errorf("decided %+v", step)
	}
	step.Verb = pool.Include
	r.places = []*place{{worker: &r.in.Workers[0], host: "node-7", step: step}}
	r.exclude(t.Context())
	if is, err := os.ReadFile(path); err != nil || string(is) != content {
		t.Errorf("%v, %s", err, is)
	}
}

// TestSecretOfNamespace checks that a pool reads Secrets of its own namespace only, whatever name it writes.
func TestSecretOfNamespace(t *testing.T) {
	for name, want := range map[string]bool{"own": true, "theirs": false, "../../other/secrets/theirs": false,
		"other/theirs": false, "..%2F..%2Fother%2Fsecrets%2Ftheirs": false} {
		r, api := apiRound(t, map[string]any{
			"/namespaces/yarn/secrets/own":     map[string]any{"data": map[string][]byte{"a": []byte("b")}},
			"/namespaces/other/secrets/theirs": map[string]any{"data": map[string][]byte{"a": []byte("b")}},
		})
		r.p.Spec.YARN.AuthSecret = &v1alpha1.ObjectReference{Name: name}
		secret, err := r.secretOf(t.Context(), "spec.yarn", v1alpha1.NameOf(r.p.Spec.YARN.AuthSecret))
		if got := err == nil && len(secret) == 1; got != want {
			t.Errorf("%q: %v, %v", name, secret, err)
		}
		for _, path := range api.asked {
			if !strings.HasPrefix(path, "/namespaces/yarn/secrets/") {
				t.Errorf("%q: %s was asked for", name, path)
			}
		}
	}
}
