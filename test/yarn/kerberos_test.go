package yarn_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

func kerberos(t *testing.T) {
	t.Helper()
	if !*secure {
		t.Skip("the cluster is without Kerberos; -kerberos starts one with it")
	}
}

// TestKerberosClients checks that both clients and that of NodeManagers work where all ask for Kerberos.
func TestKerberosClients(t *testing.T) {
	kerberos(t)
	ctx := soon(t)
	if err := rm.AddLabel(ctx, yarn.Label{Name: bed.Label, Exclusive: true}); err != nil {
		t.Errorf("a label by REST: %v", err)
	}
	if labels, err := rm.Labels(ctx); err != nil || len(labels) != 1 {
		t.Errorf("labels: %+v, %v", labels, err)
	}
	if err := admin.RefreshNodes(ctx); err != nil {
		t.Errorf("refreshing nodes by RPC: %v", err)
	}
	small := yarn.Resource{MemoryMiB: 1024, VCores: 2}
	if node, err := rm.Resize(ctx, bed.NodeID(1), small, time.Minute); err != nil || node.Total != small {
		t.Errorf("resizing by REST: %+v, %v", node, err)
	}
	if err := admin.ResizeNodes(ctx, map[string]yarn.Resource{bed.NodeID(1): offered}, time.Minute); err != nil {
		t.Errorf("resizing by RPC: %v", err)
	}
	if info, err := nm.Info(ctx, bed.NodeURL(1)); err != nil || info.ID != bed.NodeID(1) {
		t.Errorf("the NodeManager: %+v, %v", info, err)
	}
}

// TestKerberosRefused checks the errors for callers that the cluster does not accept.
func TestKerberosRefused(t *testing.T) {
	kerberos(t)
	for _, test := range []struct {
		who       string
		rest, rpc string
	}{
		{bed.Outdated, "export the keytab again", "export the keytab again"},
		{bed.Guest, "the caller is guest@BED; check that yarn.admin", "the caller is guest@BED; check that yarn.admin"},
	} {
		rm, admin, _, err := clients(test.who)
		if err != nil {
			t.Fatal(err)
		}
		want(t, test.who+" by REST", rm.AddLabel(soon(t), yarn.Label{Name: "other"}), test.rest)
		want(t, test.who+" by RPC", admin.RefreshNodes(soon(t)), test.rpc)
	}
	guest, _, _, err := clients(bed.Guest)
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := guest.Nodes(soon(t)); err != nil || len(nodes) != 1 {
		t.Errorf("reading as a principal that is no administrator: %+v, %v", nodes, err)
	}

	options, err := cluster.HTTPOptions(bed.Admin)
	if err != nil {
		t.Fatal(err)
	}
	simple := yarn.Auth{User: "root"}
	web, err := yarn.NewRM(cluster.URLs(), yarn.HTTPOptions{Auth: simple, CA: options.CA})
	if err != nil {
		t.Fatal(err)
	}
	_, err = web.Nodes(soon(t))
	want(t, "a user's name by REST", err, "status 401", "the server asks for Kerberos")
	rpc, err := yarn.NewAdmin(cluster.Admins(), web, yarn.AdminOptions{Auth: simple})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "a user's name by RPC", rpc.RefreshNodes(soon(t)), "the server asks for Kerberos")

	other := *options.Auth.Kerberos
	other.Service = "HTTP/_HOST@" + bed.Realm
	rpc, err = yarn.NewAdmin(cluster.Admins(), web, yarn.AdminOptions{Auth: yarn.Auth{Kerberos: &other}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "another service's ticket", rpc.RefreshNodes(soon(t)), "the server refused the Kerberos ticket of")
	other.Service = ""
	rpc, err = yarn.NewAdmin(cluster.Admins(), web, yarn.AdminOptions{Auth: yarn.Auth{Kerberos: &other}})
	if err != nil {
		t.Fatal(err)
	}
	if err := rpc.RefreshNodes(soon(t)); err != nil {
		t.Errorf("with the principal that the server names: %v", err)
	}

	untrusting, err := yarn.NewRM(cluster.URLs(), yarn.HTTPOptions{Auth: options.Auth})
	if err != nil {
		t.Fatal(err)
	}
	_, err = untrusting.Nodes(soon(t))
	want(t, "an unknown certificate", err, "x509", "give the client the certificate of the authority")
}

// TestKerberosNewKey checks that a client whose ticket was refused, because the service does not have the new key yet,
// goes on when it has it.
func TestKerberosNewKey(t *testing.T) {
	kerberos(t)
	rm, admin, _, err := clients(bed.Admin) // without tickets
	if err != nil {
		t.Fatal(err)
	}
	for service, call := range map[string]func() error{
		"HTTP": func() error { _, err := rm.Nodes(soon(t)); return err },
		"rm":   func() error { return admin.RefreshNodes(soon(t)) },
	} {
		if err := cluster.NewKey(service, false); err != nil {
			t.Fatal(err)
		}
		want(t, service, call(), "the server refused the Kerberos ticket of waterline@BED")
		if err := cluster.NewKey(service, true); err != nil {
			t.Fatal(err)
		}
		if err := call(); err != nil {
			t.Errorf("%s, after the service got the key: %v", service, err)
		}
	}
}

// want checks that an error contains texts.
func want(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q is not in %v", what, text, err)
		}
	}
	t.Logf("%s: %v", what, err)
}

// TestKerberosRenewal checks that a client goes on when its tickets have expired, and logs in no oftener than that.
func TestKerberosRenewal(t *testing.T) {
	kerberos(t)
	rm, admin, _, err := clients(bed.Brief)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	calls := 0
	for time.Since(start) < bed.BriefLife+bed.BriefLife/2 {
		if _, err := rm.Nodes(soon(t)); err != nil {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		if err := admin.RefreshNodes(soon(t)); err != nil {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		calls++
		time.Sleep(200 * time.Millisecond)
	}
	log, err := cluster.KDC().Log()
	if err != nil {
		t.Fatal(err)
	}
	logins := 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, "AS_REQ") && strings.Contains(line, "ISSUE") && strings.Contains(line, bed.Brief+"@") {
			logins++
		}
	}
	const clients = 2 // of REST and of RPC
	if logins != 2*clients {
		t.Errorf("the KDC gave %d logins for %d calls in %v, not two for each client", logins, calls, time.Since(start))
	}
}

// TestKerberosProtections checks RPC with each of Hadoop's protections, and that the strongest is used.
func TestKerberosProtections(t *testing.T) {
	kerberos(t)
	auth, err := cluster.Auth(bed.Admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		offered   string
		encrypted bool
	}{{"authentication", false}, {"authentication,integrity", false}, {"authentication,integrity,privacy", true}} {
		if err := cluster.RM(1).Kill(soon(t)); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Protect(test.offered); err != nil {
			t.Fatal(err)
		}
		if err := cluster.RM(1).Start(); err != nil {
			t.Fatal(err)
		}
		var sent bytes.Buffer
		spy, err := yarn.NewAdmin(cluster.Admins(), rm, yarn.AdminOptions{
			Auth: auth,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				sent.Reset()
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return spied{conn, &sent}, err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := bed.Eventually(soon(t), spy.RefreshNodes); err != nil {
			t.Errorf("with %s: %v", test.offered, err)
		}
		if readable := bytes.Contains(sent.Bytes(), []byte("refreshNodes")); readable == test.encrypted {
			t.Errorf("with %s, the call is encrypted: %v, not %v", test.offered, !readable, test.encrypted)
		}
	}
}

// spied is a connection that keeps what is sent.
type spied struct {
	net.Conn
	sent *bytes.Buffer
}

func (s spied) Write(b []byte) (int, error) {
	s.sent.Write(b)
	return s.Conn.Write(b)
}
