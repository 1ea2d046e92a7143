package yarn

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
	"google.golang.org/protobuf/encoding/protowire"
)

// accept returns the authenticator of a first token of GSSAPI, as a service with its key reads it.
func (k *testKDC) accept(token []byte) (types.Authenticator, error) {
	var outer asn1.RawValue
	var id asn1.ObjectIdentifier
	if _, err := asn1.Unmarshal(token, &outer); err != nil {
		return types.Authenticator{}, err
	}
	rest, err := asn1.Unmarshal(outer.Bytes, &id)
	if err != nil || id.String() != "1.2.840.113554.1.2.2" || !bytes.HasPrefix(rest, []byte{1, 0}) {
		return types.Authenticator{}, errors.New("no token of Kerberos")
	}
	var request messages.APReq
	if err := request.Unmarshal(rest[2:]); err != nil {
		return types.Authenticator{}, err
	}
	if err := request.Ticket.DecryptEncPart(&k.keys, nil); err != nil {
		return types.Authenticator{}, err
	}
	err = request.DecryptAuthenticator(request.Ticket.DecryptedEncPart.Key)
	return request.Authenticator, err
}

// acceptor is the other end of a gssContext.
type acceptor struct {
	gssContext
	rotate uint16 // by how much tokens are rotated; MIT's library does that
}

func newAcceptor(key types.EncryptionKey, number int64) (*acceptor, error) {
	kind, err := crypto.GetEtype(key.KeyType)
	return &acceptor{gssContext: gssContext{key: key, kind: kind, sent: uint64(number)}}, err
}

func (a *acceptor) wrap(message []byte, encrypt bool) []byte {
	header := []byte{5, 4, 1, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint64(header[8:], a.sent)
	a.sent++
	var rest []byte
	if encrypt {
		header[2] |= sealed
		plain := append(bytes.Clone(message), header...)
		_, rest, _ = a.kind.EncryptMessage(a.key.KeyValue, plain, keyusage.GSSAPI_ACCEPTOR_SEAL)
	} else {
		sum, _ := a.sum(message, header, keyusage.GSSAPI_ACCEPTOR_SEAL)
		binary.BigEndian.PutUint16(header[4:], uint16(len(sum)))
		rest = append(bytes.Clone(message), sum...)
	}
	binary.BigEndian.PutUint16(header[6:], a.rotate)
	by := len(rest) - int(a.rotate)%len(rest)
	return append(header, append(bytes.Clone(rest[by:]), rest[:by]...)...)
}

// sum returns the checksum of a message and of a header without its two lengths.
func (a *acceptor) sum(message, header []byte, usage uint32) ([]byte, error) {
	all := append(bytes.Clone(message), header...)
	clear(all[len(message)+4 : len(message)+8])
	return a.kind.GetChecksumHash(a.key.KeyValue, all, usage)
}

// unwrap reads what the initiator wrapped.
func (a *acceptor) unwrap(token []byte) ([]byte, error) {
	header, rest := token[:16], token[16:]
	if header[2] == sealed {
		plain, err := a.kind.DecryptMessage(a.key.KeyValue, rest, keyusage.GSSAPI_INITIATOR_SEAL)
		if err != nil || !bytes.HasSuffix(plain, header) {
			return nil, errors.New("not sealed by the initiator")
		}
		return bytes.TrimSuffix(plain, header), nil
	}
	extra := int(binary.BigEndian.Uint16(header[4:]))
	message, sum := rest[:len(rest)-extra], rest[len(rest)-extra:]
	if want, err := a.sum(message, header, keyusage.GSSAPI_INITIATOR_SEAL); err != nil || !bytes.Equal(sum, want) {
		return nil, errors.New("a wrong checksum")
	}
	return message, nil
}

// saslServer answers one call with [refresh.received], and keeps what it understood.
type saslServer struct {
	kdc     *testKDC
	offer   byte   // protections
	rotate  uint16 // of tokens
	tamper  func([]byte) []byte
	auths   [][]byte
	who     string
	context []byte // the connection's, and the call
}

func saslFrame(m saslMessage) []byte {
	return frame(nil, number64(number64(nil, 1, 0), 2, 0), m.encode())
}

// request reads a frame of SASL, whose header is another than that of answers.
func saslRequest(conn io.Reader) (saslMessage, error) {
	content, err := readFrame(conn)
	if err != nil {
		return saslMessage{}, err
	}
	header := saslHeader()
	if !bytes.HasPrefix(content[1:], header) {
		return saslMessage{}, errors.New("another header")
	}
	return parseSASL(append([]byte{0}, content[1+len(header):]...))
}

func (s *saslServer) serve(conn net.Conn) error {
	defer conn.Close()
	start := make([]byte, 7)
	if _, err := io.ReadFull(conn, start); err != nil || string(start) != "hrpc\x09\x00\xdf" {
		return errors.Join(err, errors.New("another beginning"))
	}
	if m, err := saslRequest(conn); err != nil || m.state != saslNegotiate {
		return errors.Join(err, errors.New("no NEGOTIATE"))
	}
	var offered saslMessage
	offered.state = saslNegotiate
	for _, raw := range s.auths {
		offered.auths = append(offered.auths, saslAuth{raw: raw})
	}
	_, _ = conn.Write(saslFrame(offered))
	m, err := saslRequest(conn)
	chosen := s.auths[len(s.auths)-1]
	if err != nil || m.state != saslInitiate || len(m.auths) != 1 || !bytes.Equal(m.auths[0].raw, chosen) {
		return errors.Join(err, errors.New("no INITIATE"))
	}
	who, err := s.kdc.accept(m.token)
	if err != nil {
		return err
	}
	s.who = who.CName.PrincipalNameString() + "@" + who.CRealm
	gss, err := newAcceptor(who.SubKey, who.SeqNumber)
	if err != nil {
		return err
	}
	gss.rotate = s.rotate
	token := gss.wrap([]byte{s.offer, 0, 1, 0}, false)
	if s.tamper != nil {
		token = s.tamper(token)
	}
	_, _ = conn.Write(saslFrame(saslMessage{state: saslChallenge, token: token}))
	if m, err = saslRequest(conn); err != nil || m.state != saslResponse {
		return errors.Join(err, errors.New("no RESPONSE"))
	}
	if len(m.token) == 0 {
		_, err := conn.Write(saslFrame(saslMessage{state: saslSuccess}))
		return err
	}
	choice, err := gss.unwrap(m.token)
	if err != nil || len(choice) != 4 || (choice[0] == protectNothing) != bytes.Equal(choice[1:], []byte{0, 0, 0}) {
		return errors.Join(err, errors.New("a wrong choice"))
	}
	_, _ = conn.Write(saslFrame(saslMessage{state: saslSuccess}))
	answer, err := s.read(conn, gss, choice[0])
	if err != nil {
		return err
	}
	_, err = conn.Write(answer)
	return err
}

// read reads the connection's context and the call, and returns the answer.
func (s *saslServer) read(conn io.Reader, gss *acceptor, protection byte) ([]byte, error) {
	answer := []byte("\x00\x00\x00\x1c\x1a\x08\x00\x10\x00\x18\x09\x3a\x10" + strings.Repeat("i", 16) + "\x00")
	answer[3] = byte(len(answer) - 4)
	answer[4] = byte(len(answer) - 6)
	if protection == protectNothing {
		for range 2 {
			content, err := readFrame(conn)
			if err != nil {
				return nil, err
			}
			s.context = append(s.context, content...)
		}
		return answer, nil
	}
	m, err := saslRequest(conn)
	if err != nil || m.state != saslWrap {
		return nil, errors.Join(err, errors.New("no WRAP"))
	}
	if sealed := m.token[2]&sealed != 0; sealed != (protection == protectPrivacy) {
		return nil, errors.New("another protection")
	}
	if s.context, err = gss.unwrap(m.token); err != nil {
		return nil, err
	}
	var all []byte // in two messages
	for _, part := range [][]byte{answer[:9], answer[9:]} {
		all = append(all, saslFrame(saslMessage{state: saslWrap, token: gss.wrap(part, protection == protectPrivacy)})...)
	}
	return all, nil
}

func offered(fields ...string) []byte {
	var b []byte
	for i, f := range fields {
		b = text(b, protowire.Number(i+1), f)
	}
	return b
}

// saslAdmin returns a client of a server with Kerberos.
func saslAdmin(t *testing.T, s *saslServer, configured string) (*Admin, <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	done := make(chan error, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			done <- s.serve(conn)
		}
	}()
	who := kerberos(t, "waterline", "secret of waterline")
	who.Service = configured
	a, err := NewAdmin([]string{l.Addr().String()},
		AdminOptions{Auth: Auth{Kerberos: who}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	a.rpc.tickets = s.kdc.tickets(t, who)
	a.servers.pause = time.Millisecond
	return a, done
}

// TestSASL checks a call with each protection. Real servers are in test/yarn.
func TestSASL(t *testing.T) {
	gssapi := offered("KERBEROS", "GSSAPI", "rm", "rm1.bed")
	token := append(offered("TOKEN", "DIGEST-MD5", "", "default"), 0x2a, 1, 'x')
	for name, test := range map[string]*saslServer{
		"authentication": {offer: protectNothing, auths: [][]byte{gssapi}},
		"integrity":      {offer: protectNothing | protectIntegrity, auths: [][]byte{token, gssapi}},
		"privacy":        {offer: protectNothing | protectIntegrity | protectPrivacy, auths: [][]byte{gssapi}},
		"rotated":        {offer: protectPrivacy, rotate: 28, auths: [][]byte{gssapi}},
	} {
		t.Run(name, func(t *testing.T) {
			test.kdc = newKDC(t)
			a, done := saslAdmin(t, test, "")
			if err := a.RefreshNodes(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Errorf("the server: %v", err)
			}
			if test.who != "waterline@BED" || !bytes.Contains(test.context, []byte("waterline@BED")) ||
				!bytes.Contains(test.context, []byte("refreshNodes")) {
				t.Errorf("the server knows the caller as %q, and read %q", test.who, test.context)
			}
		})
	}
}

// TestSASLRefused checks servers that are not what they should be.
func TestSASLRefused(t *testing.T) {
	gssapi := [][]byte{offered("KERBEROS", "GSSAPI", "rm", "rm1.bed")}
	for name, test := range map[string]struct {
		server     saslServer
		configured string
		want       string
	}{
		"without Kerberos": {saslServer{auths: [][]byte{offered("SIMPLE", "")}}, "", `accepts \["SIMPLE"\], not KERBEROS`},
		"without a name":   {saslServer{auths: [][]byte{offered("KERBEROS", "GSSAPI")}}, "", "set the principal of the"},
		"another service": {saslServer{auths: [][]byte{offered("KERBEROS", "GSSAPI", "nm", "rm1.bed")}}, "",
			"a Kerberos ticket for nm/rm1.bed@BED as waterline@BED: .*does not know this service"},
		"as configured": {saslServer{auths: gssapi}, "rm/_HOST@BED", "a Kerberos ticket for rm/127.0.0.1@BED"},
		"no protection": {saslServer{auths: gssapi, offer: 8}, "", "unknown protections 0x8"},
		"another key": {saslServer{auths: gssapi, offer: 1, tamper: func(b []byte) []byte { b[len(b)-1]++; return b }}, "",
			"authenticating to rm/rm1.bed as waterline@BED: .*checksum is wrong"},
		"another number": {saslServer{auths: gssapi, offer: 1, tamper: func(b []byte) []byte { b[15]++; return b }}, "",
			"checksum is wrong"},
		"the client's own token": {
			saslServer{auths: gssapi, offer: 1, tamper: func(b []byte) []byte { b[2] = 0; return b }}, "",
			"no Wrap token of the server"},
		"no token": {saslServer{auths: gssapi, offer: 1, tamper: func([]byte) []byte { return []byte("x") }}, "",
			"no Wrap token"},
		"empty tokens": {saslServer{auths: gssapi, offer: 1, tamper: func([]byte) []byte { return nil }}, "",
			"without having proved who it is"},
	} {
		t.Run(name, func(t *testing.T) {
			test.server.kdc = newKDC(t)
			a, _ := saslAdmin(t, &test.server, test.configured)
			err := a.RefreshNodes(t.Context())
			matches(t, err, test.want)
			matches(t, err, "calling refreshNodes at 127.0.0.1:")
		})
	}
	a := adminClient(t, serveRPC(t, rpcRecording(t, "sasl-needed.received")).address())
	matches(t, a.RefreshNodes(t.Context()), "SIMPLE authentication is not enabled.*the server asks for Kerberos")
}

// TestSASLExceptions checks the answers of a real ResourceManager that refuses a ticket.
func TestSASLExceptions(t *testing.T) {
	k := newKDC(t)
	conn := struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(rpcRecording(t, "sasl-refused.received")), io.Discard}
	_, err := k.client(t).authenticate(t.Context(), conn, "rm1.bed:8033")
	var exception *RPCError
	if !errors.As(err, &exception) || exception.Class != "javax.security.sasl.SaslException" {
		t.Errorf("%v", err)
	}
	matches(t, &RPCError{Class: "javax.security.sasl.SaslException", Principal: "w@BED"},
		"refused the Kerberos ticket of w@BED")
	matches(t, &RPCError{Class: "YarnException", Message: "a.AccessControlException: no", Principal: "w@BED"},
		"the caller is w@BED; check that yarn.admin.acl")
}

// TestSPNEGO checks that requests have a ticket where the server asks for one, with their body.
func TestSPNEGO(t *testing.T) {
	k := newKDC(t)
	var got []string
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got = append(got, r.Method+" "+scheme+" "+string(body))
		content, err := base64.StdEncoding.DecodeString(token)
		if err != nil || len(content) == 0 {
			w.Header().Set("WWW-Authenticate", "Negotiate")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		i := bytes.Index(content[1:], []byte{0x60}) // Kerberos's own token, inside SPNEGO's
		if who, err := k.accept(content[1+i:]); err != nil || who.CName.PrincipalNameString() != "waterline" {
			t.Errorf("%v, %v", who.CName, err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"nodes":{"node":[]}}`)
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	auth := Auth{Kerberos: kerberos(t, "waterline", "secret of waterline")}
	connect := func(o HTTPOptions) *RM {
		c, err := NewRM([]string{server.URL}, o)
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := c.client.Transport.(*negotiator); ok {
			n.tickets = k.client(t)
		}
		c.servers.pause = time.Millisecond
		return c
	}
	c := connect(HTTPOptions{Auth: auth, CA: ca})
	for range 2 {
		if err := c.Do(t.Context(), http.MethodPost, "/x", map[string]int{"a": 1}, nil); err != nil {
			t.Error(err)
		}
	}
	if all := strings.Join(got, "; "); all != `POST  {"a":1}; POST Negotiate {"a":1}; POST Negotiate {"a":1}` {
		t.Error(all)
	}
	tickets := len(k.services)
	status = http.StatusUnauthorized
	_, err := c.Nodes(t.Context())
	matches(t, err, "refused the Kerberos ticket of waterline@BED; check the server's keytab for HTTP/127.0.0.1")
	status = http.StatusForbidden
	_, err = c.Nodes(t.Context())
	matches(t, err, "the caller is waterline@BED; check that yarn.admin.acl")
	if len(k.services) != tickets+1 {
		t.Errorf("%d tickets were asked for after one was refused, not one", len(k.services)-tickets)
	}

	_, err = connect(HTTPOptions{CA: ca}).Nodes(t.Context())
	matches(t, err, "status 401.*the server asks for Kerberos")
	_, err = connect(HTTPOptions{Auth: auth}).Nodes(t.Context())
	matches(t, err, "x509: .*; give the client the certificate of the authority")
	c = connect(HTTPOptions{CA: ca})
	c.servers.all = []string{strings.Replace(server.URL, "127.0.0.1", "localhost", 1)}
	_, err = c.Nodes(t.Context())
	matches(t, err, "the address must have a name that the server's certificate has")
	if _, err := NewRM([]string{server.URL}, HTTPOptions{CA: ca, Transport: http.DefaultTransport}); err == nil {
		t.Error("a transport and certificates are accepted")
	}
}

// FuzzSASL checks that nothing that a server sends makes the client panic, take much memory, or believe the server.
func FuzzSASL(f *testing.F) {
	key := types.EncryptionKey{KeyType: testKey, KeyValue: bytes.Repeat([]byte{1}, 32)}
	gss, err := newAcceptor(key, 7)
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"sasl", "sasl-refused", "sasl-needed"} {
		f.Add(rpcRecording(f, name+".received"), true)
	}
	auth := saslAuth{raw: offered("KERBEROS", "GSSAPI", "rm", "rm1.bed")}
	offer := saslFrame(saslMessage{state: saslNegotiate, auths: []saslAuth{auth}})
	for _, p := range []byte{protectNothing, protectIntegrity, protectPrivacy} {
		gss.sent = 7
		stream := bytes.Clone(offer)
		for _, m := range []saslMessage{
			{state: saslChallenge, token: gss.wrap([]byte{p, 0, 1, 0}, false)},
			{state: saslSuccess},
			{state: saslWrap, token: gss.wrap([]byte("\x00\x00\x00\x00"), p == protectPrivacy)},
		} {
			stream = append(stream, saslFrame(m)...)
		}
		f.Add(stream, false)
	}
	k := newKDC(f)
	who := kerberos(f, "waterline", "secret of waterline")
	f.Fuzz(func(t *testing.T, stream []byte, real bool) {
		conn := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(stream), io.Discard}
		if real {
			if _, err := k.tickets(t, who).authenticate(t.Context(), conn, "rm1.bed:8033"); err == nil {
				t.Error("a server without the key is believed")
			}
			return
		}
		c := &saslConn{ReadWriter: conn, gss: &gssContext{key: key, kind: gss.kind, sent: 7}}
		if _, err := c.exchange(saslMessage{state: saslNegotiate}, saslNegotiate); err != nil {
			return
		}
		if err := c.handshake(saslMessage{state: saslInitiate, token: []byte("x")}); err != nil {
			return
		}
		if c.protection != protectNothing {
			_, _ = readFrame(c)
		}
	})
}
