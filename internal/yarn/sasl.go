package yarn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// SASL in Hadoop's RPC. The connection's header says authSASL, and then frames with call id −33 and RpcSaslProto pass
// until the server answers success:
//
//	client  NEGOTIATE
//	server  NEGOTIATE   the mechanisms, each with the server's principal
//	client  INITIATE    the mechanism, and the first token of GSSAPI
//	server  CHALLENGE   protections that it offers, in a Wrap token
//	client  RESPONSE    the protection, in a Wrap token
//	server  SUCCESS
//
// After that, connection context and call pass as always with the protection "authentication", and else in frames
// with RpcSaslProto WRAP.

const (
	authSASL   = 0xDF
	saslCallID = -33
	saslRounds = 5 // two are usual
)

// The states of RpcSaslProto.
const (
	saslSuccess   = 0
	saslNegotiate = 1
	saslInitiate  = 2
	saslChallenge = 3
	saslResponse  = 4
	saslWrap      = 5
)

// The protections of RFC 4752, section 3.3, which Hadoop calls authentication, integrity and privacy.
const (
	protectNothing   = 1
	protectIntegrity = 2
	protectPrivacy   = 4
)

// saslMessage is a RpcSaslProto.
type saslMessage struct {
	state uint64
	token []byte
	auths []saslAuth
}

// saslAuth is a mechanism that a server offers.
type saslAuth struct {
	method, mechanism, protocol, server string
	raw                                 []byte // as sent; the client's choice must be equal to it
}

func (m saslMessage) encode() []byte {
	b := number64(nil, 2, m.state)
	if m.token != nil {
		b = embedded(b, 3, m.token)
	}
	for _, a := range m.auths {
		b = embedded(b, 4, a.raw)
	}
	return b
}

// parseSASL returns the message of a frame, or an [RPCError].
func parseSASL(content []byte) (saslMessage, error) {
	body, err := parseAnswer(content)
	if err != nil {
		return saslMessage{}, err
	}
	var m saslMessage
	var failed error
	err = fields(body, func(field protowire.Number, value uint64, bytes []byte) {
		switch field {
		case 2:
			m.state = value
		case 3:
			m.token = bytes
		case 4:
			a := saslAuth{raw: bytes}
			part := map[protowire.Number]*string{1: &a.method, 2: &a.mechanism, 3: &a.protocol, 4: &a.server}
			failed = errors.Join(failed, fields(bytes, func(field protowire.Number, _ uint64, bytes []byte) {
				if to := part[field]; to != nil {
					*to = strings.ToValidUTF8(string(bytes), "?")
				}
			}))
			m.auths = append(m.auths, a)
		}
	})
	return m, errors.Join(err, failed)
}

// saslConn is a connection whose server has accepted the caller.
type saslConn struct {
	io.ReadWriter
	gss        *gssContext
	protection byte
	unread     []byte // of the last frame
}

// authenticate makes the server at an address, host:port, accept the caller, and returns how to go on.
func (t *tickets) authenticate(ctx context.Context, conn io.ReadWriter, address string) (io.ReadWriter, error) {
	c := &saslConn{ReadWriter: conn}
	if _, err := conn.Write([]byte{'h', 'r', 'p', 'c', rpcVersion, 0, authSASL}); err != nil {
		return nil, err
	}
	offer, err := c.exchange(saslMessage{state: saslNegotiate}, saslNegotiate)
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(offer.auths, func(a saslAuth) bool { return a.method == "KERBEROS" && a.mechanism == "GSSAPI" })
	if n < 0 {
		var methods []string
		for _, a := range offer.auths {
			methods = append(methods, a.method)
		}
		return nil, fmt.Errorf("the server accepts %q, not KERBEROS; check hadoop.security.authentication there, or call it "+
			"without Kerberos", methods)
	}
	service, err := t.rpcService(offer.auths[n], address)
	if err != nil {
		return nil, err
	}
	ticket, err := t.of(ctx, service)
	if err != nil {
		return nil, err
	}
	var token []byte
	if c.gss, token, err = t.initiate(ticket); err == nil {
		err = c.gss.usable()
	}
	if err != nil {
		return nil, &KerberosError{Principal: t.principal, Service: service, Err: err}
	}
	if err := c.handshake(saslMessage{state: saslInitiate, token: token, auths: offer.auths[n : n+1]}); err != nil {
		t.forget(ctx, ticket)
		return nil, fmt.Errorf("authenticating to %s as %s: %w", service, t.principal, err)
	}
	if c.protection == protectNothing {
		return conn, nil
	}
	return c, nil
}

// rpcService returns the principal of an RPC server: as configured, or else as the server says.
func (t *tickets) rpcService(offered saslAuth, address string) (string, error) {
	if t.service != "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return "", err
		}
		return strings.Replace(t.service, "_HOST", strings.ToLower(host), 1), nil
	}
	if offered.protocol == "" || offered.server == "" {
		return "", fmt.Errorf("the server names its principal %q/%q; set the principal of the ResourceManagers' RPC",
			offered.protocol, offered.server)
	}
	return offered.protocol + "/" + offered.server, nil
}

// handshake sends the first message and answers the server's until it has accepted the caller.
func (c *saslConn) handshake(next saslMessage) error {
	for range saslRounds {
		answer, err := c.exchange(next, saslChallenge, saslSuccess)
		if err != nil {
			return err
		}
		if answer.state == saslSuccess && c.protection == 0 {
			return errors.New("the server accepted the caller without having proved who it is")
		}
		if answer.state == saslSuccess {
			return nil
		}
		next = saslMessage{state: saslResponse, token: []byte{}}
		if len(answer.token) > 0 {
			if next.token, err = c.protect(answer.token); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("the server did not accept the caller in %d rounds", saslRounds)
}

// protect chooses the strongest of the protections that the server offers, and returns the answer.
func (c *saslConn) protect(token []byte) ([]byte, error) {
	offer, _, err := c.gss.unwrap(token)
	if err != nil {
		return nil, fmt.Errorf("the server's offer of protections: %w", err)
	}
	const length = 4
	if len(offer) != length || c.protection != 0 {
		return nil, fmt.Errorf("the server's offer of protections is %q", offer)
	}
	var answer [length]byte
	for _, p := range []byte{protectPrivacy, protectIntegrity, protectNothing} {
		if offer[0]&p != 0 {
			c.protection = p
			break
		}
	}
	switch c.protection {
	case 0:
		return nil, fmt.Errorf("the server offers unknown protections %#x; check hadoop.rpc.protection there", offer[0])
	case protectPrivacy, protectIntegrity:
		binary.BigEndian.PutUint32(answer[:], maxFrame) // what fits into one message to the client
	}
	answer[0] = c.protection
	return c.gss.wrap(answer[:], false)
}

// exchange sends a message and returns the answer, which must have one of some states.
func (c *saslConn) exchange(m saslMessage, states ...uint64) (saslMessage, error) {
	if _, err := c.ReadWriter.Write(frame(nil, saslHeader(), m.encode())); err != nil {
		return saslMessage{}, err
	}
	return c.receive(states...)
}

func (c *saslConn) receive(states ...uint64) (saslMessage, error) {
	content, err := readFrame(c.ReadWriter)
	if err != nil {
		return saslMessage{}, err
	}
	m, err := parseSASL(content)
	if err == nil && !slices.Contains(states, m.state) {
		err = fmt.Errorf("a message of SASL has the state %d, not one of %d", m.state, states)
	}
	return m, err
}

// saslHeader returns the header of frames of SASL. They carry no client's id.
func saslHeader() []byte { return rpcHeader(saslCallID, "", contextRetries) }

// Write sends bytes under the protection that was chosen.
func (c *saslConn) Write(b []byte) (int, error) {
	token, err := c.gss.wrap(b, c.protection == protectPrivacy)
	if err != nil {
		return 0, err
	}
	message := saslMessage{state: saslWrap, token: token}.encode()
	if _, err := c.ReadWriter.Write(frame(nil, saslHeader(), message)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Read returns bytes that came under the protection that was chosen.
func (c *saslConn) Read(b []byte) (int, error) {
	for len(c.unread) == 0 {
		m, err := c.receive(saslWrap)
		if err != nil {
			return 0, err
		}
		message, encrypted, err := c.gss.unwrap(m.token)
		if err == nil && !encrypted && c.protection == protectPrivacy {
			err = errors.New("it is not encrypted")
		}
		if err != nil {
			return 0, fmt.Errorf("a protected message: %w", err)
		}
		c.unread = bytes.Clone(message)
	}
	n := copy(b, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}
