package yarn_test

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
	"github.com/waterline-io/waterline/test/poll"
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
	if node, err := bed.Resize(ctx, rm, bed.NodeID(1), small, time.Minute); err != nil || node.Total != small {
		t.Errorf("resizing by REST: %+v, %v", node, err)
	}
	if err := bed.ResizeNodes(ctx, admin, rm, map[string]yarn.Resource{bed.NodeID(1): offered}, time.Minute); err != nil {
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
	rpc, err := yarn.NewAdmin(cluster.Admins(), yarn.AdminOptions{Auth: simple})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "a user's name by RPC", rpc.RefreshNodes(soon(t)), "the server asks for Kerberos")

	other := *options.Auth.Kerberos
	other.Service = "HTTP/_HOST@" + bed.Realm
	rpc, err = yarn.NewAdmin(cluster.Admins(), yarn.AdminOptions{Auth: yarn.Auth{Kerberos: &other}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "another service's ticket", rpc.RefreshNodes(soon(t)), "the server refused the Kerberos ticket of")
	other.Service = ""
	rpc, err = yarn.NewAdmin(cluster.Admins(), yarn.AdminOptions{Auth: yarn.Auth{Kerberos: &other}})
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
	for name, call := range map[string]func(context.Context) error{
		"REST": func(ctx context.Context) error { _, err := rm.Nodes(ctx); return err },
		"RPC":  admin.RefreshNodes,
	} {
		before := len(briefLogins(t))
		var logins []int64
		calls := 0
		again := poll.Until(3*time.Minute, 200*time.Millisecond, func() bool {
			if err := call(soon(t)); err != nil {
				t.Fatalf("%s, call %d: %v", name, calls, err)
			}
			calls++
			logins = briefLogins(t)[before:]
			return len(logins) > 1
		})
		t.Logf("%s: logins at %v for %d calls", name, logins, calls)
		// A client logs in while a tenth of its ticket's life is left. The KDC writes whole seconds.
		if least := int64(bed.BriefLife/time.Second) * 9 / 10; !again || len(logins) != 2 || logins[1]-logins[0] < least {
			t.Errorf("%s: the KDC gave logins at %v for %d calls, not two that are %d s apart", name, logins, calls, least)
		}
	}
}

// briefLogins returns when the KDC gave logins to [bed.Brief], as it wrote them, in seconds.
func briefLogins(t *testing.T) (at []int64) {
	t.Helper()
	log, err := cluster.KDC().Log()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "AS_REQ") || !strings.Contains(line, bed.Brief+"@") {
			continue
		}
		if _, rest, found := strings.Cut(line, "ISSUE: authtime "); found {
			seconds, _, _ := strings.Cut(rest, ",")
			when, err := strconv.ParseInt(seconds, 10, 64)
			if err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			at = append(at, when)
		}
	}
	return at
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
		spy, err := yarn.NewAdmin(cluster.Admins(), yarn.AdminOptions{
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
		if err := eventually(t, spy.RefreshNodes); err != nil {
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
