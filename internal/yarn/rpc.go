package yarn

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Hadoop's RPC, version 9, over one connection:
//
//	"hrpc" 9 serviceClass authProtocol
//	frame: request header with call id −3, IpcConnectionContextProto
//	frame: request header with the call's id, RequestHeaderProto, the method's message
//
// and back a frame with RpcResponseHeaderProto and the method's answer. A frame is its length in four bytes and
// messages, each behind its length as a varint. The messages are those of RpcHeader.proto, IpcConnectionContext.proto
// and ProtobufRpcEngine2.proto.

const (
	rpcVersion       = 9
	authSimple       = 0
	contextCallID    = -3
	contextRetries   = -1
	protocolBuffers  = 2       // RpcKindProto
	maxFrame         = 4 << 20 // bytes; answers of the administration protocol list nodes at most
	standbyException = "org.apache.hadoop.ipc.StandbyException"
	saslException    = "SaslException" // the end of it
)

// RPCError is an exception that a ResourceManager answered a call with.
type RPCError struct {
	Address, Method string
	Class           string // of the Java exception
	Message         string // its first line
	Principal       string // of Kerberos, who called; empty without Kerberos
}

// Error says what was called, what was answered, and what to do.
func (e *RPCError) Error() string {
	text := fmt.Sprintf("calling %s at %s: %s: %s", e.Method, e.Address, e.Class, e.Message)
	kerberos := e.Principal != ""
	const denied = "AccessControlException"
	switch {
	case strings.HasSuffix(e.Class, saslException):
		text += fmt.Sprintf("; the server refused the Kerberos ticket of %s; check the server's keytab, and the clocks",
			e.Principal)
	// The administration protocol wraps it in another exception.
	case !strings.HasSuffix(e.Class, denied) && !strings.Contains(e.Message, denied+":"):
	case kerberos:
		text += fmt.Sprintf("; the caller is %s; check that yarn.admin.acl names the user that the server's "+
			"hadoop.security.auth_to_local makes of it", e.Principal)
	case strings.HasPrefix(e.Message, "SIMPLE authentication is not enabled"):
		text += "; the server asks for Kerberos; give the client a principal and its keytab"
	default:
		text += "; check the user name, and that yarn.admin.acl names this user"
	}
	return text
}

// Is reports whether the target is [ErrStandby] and the ResourceManager answered that it is on standby.
func (e *RPCError) Is(target error) bool { return target == ErrStandby && e.Class == standbyException }

// rpc calls methods of one protocol. Each call has a connection of its own: calls are rare, and so no connection has to
// be watched.
//
// Hadoop's RPC knows no TLS. With Kerberos, the server's property hadoop.rpc.protection decides what is encrypted.
type rpc struct {
	protocol string
	user     string
	tickets  *tickets // nil without Kerberos
	caller   string   // for the ResourceManager's audit log
	timeout  time.Duration
	dial     Dial
	clientID [16]byte
}

func newRPC(protocol string, o AdminOptions) (*rpc, error) {
	r := &rpc{protocol: protocol, user: o.Auth.User, caller: "waterline", dial: o.Dial}
	var err error
	if r.tickets, err = o.Auth.tickets(); err != nil {
		return nil, fmt.Errorf("making a client of the administration protocol: %w", err)
	}
	if r.tickets != nil {
		r.user = r.tickets.principal
	}
	r.timeout = cmp.Or(o.Timeout, 20*time.Second)
	if r.dial == nil {
		r.dial = new(net.Dialer).DialContext
	}
	_, _ = rand.Read(r.clientID[:]) // never fails; the server tells repeated calls by it
	return r, nil
}

// call calls a method of the server at an address and returns its answer.
func (r *rpc) call(ctx context.Context, address, method string, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	conn, err := r.dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("calling %s at %s: %w", method, address, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	stream := io.ReadWriter(conn)
	var sent []byte
	if r.tickets == nil {
		sent = []byte{'h', 'r', 'p', 'c', rpcVersion, 0, authSimple}
	} else if stream, err = r.tickets.authenticate(ctx, conn, address); err != nil {
		return nil, r.failed("calling %s at %s: %w", method, address, errors.Join(err, ctx.Err()))
	}
	if _, err := stream.Write(r.request(sent, method, message)); err != nil {
		return nil, fmt.Errorf("calling %s at %s: %w", method, address, errors.Join(err, ctx.Err()))
	}
	answer, err := readFrame(stream)
	if err != nil {
		return nil, fmt.Errorf("reading the answer to %s from %s: %w", method, address, errors.Join(err, ctx.Err()))
	}
	body, err := parseAnswer(answer)
	if err != nil {
		return nil, r.failed("reading the answer to %s from %s: %w; check that it is the address of the "+
			"ResourceManager's administration protocol", method, address, err)
	}
	return body, nil
}

// failed returns an error in a format, or the exception that the server answered.
func (r *rpc) failed(format, method, address string, err error) error {
	var exception *RPCError
	if !errors.As(err, &exception) {
		return fmt.Errorf(format, method, address, err)
	}
	exception.Address, exception.Method = address, method
	if r.tickets != nil {
		exception.Principal = r.tickets.principal
	}
	return exception
}

// request appends what is sent for one call on a connection whose header and authentication are sent.
func (r *rpc) request(sent []byte, method string, message []byte) []byte {
	user := text(nil, 1, r.user)
	connection := text(embedded(nil, 2, user), 3, r.protocol)
	sent = frame(sent, r.header(contextCallID, contextRetries), connection)
	called := number64(text(text(nil, 1, method), 2, r.protocol), 3, 1) // the protocol's version
	return frame(sent, r.header(0, 0), called, message)
}

// header returns the header of a call.
func (r *rpc) header(call, retries int64) []byte {
	b := rpcHeader(call, string(r.clientID[:]), retries)
	return embedded(b, 7, text(nil, 1, r.caller)) // RPCCallerContextProto
}

// rpcHeader returns an RpcRequestHeaderProto.
func rpcHeader(call int64, client string, retries int64) []byte {
	b := number64(nil, 1, protocolBuffers)
	b = number64(b, 2, 0) // RPC_FINAL_PACKET
	b = number64(b, 3, protowire.EncodeZigZag(call))
	b = text(b, 4, client)
	return number64(b, 5, protowire.EncodeZigZag(retries))
}

// frame appends messages, each behind its length, behind the length of all.
func frame(b []byte, messages ...[]byte) []byte {
	var content []byte
	for _, m := range messages {
		content = protowire.AppendBytes(content, m)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}

func number64(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func text(b []byte, field protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func embedded(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func readFrame(from io.Reader) ([]byte, error) { return readBounded(from, maxFrame) }

// readBounded reads as many bytes as the four before them say, if that is not too much.
func readBounded(from io.Reader, most uint32) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > most {
		return nil, fmt.Errorf("it starts as if it had %d bytes, more than %d", n, most)
	}
	// Memory is taken as bytes arrive, not because four of them promise more.
	content, err := io.ReadAll(io.LimitReader(from, int64(n)))
	if err == nil && len(content) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	return content, err
}

// parseAnswer returns the message of an answer, or an [RPCError].
func parseAnswer(content []byte) ([]byte, error) {
	head, n := protowire.ConsumeBytes(content)
	if n < 0 {
		return nil, fmt.Errorf("the answer's header: %w", protowire.ParseError(n))
	}
	var status uint64
	var exception RPCError
	err := fields(head, func(field protowire.Number, value uint64, bytes []byte) {
		switch field {
		case 2:
			status = value
		case 4:
			exception.Class = string(bytes)
		case 5: // a stack trace follows the message
			exception.Message, _, _ = strings.Cut(strings.ToValidUTF8(string(bytes), "?"), "\n")
		}
	})
	if err != nil {
		return nil, fmt.Errorf("the answer's header: %w", err)
	}
	if status != 0 {
		return nil, &exception
	}
	body, m := protowire.ConsumeBytes(content[n:])
	if m < 0 {
		return nil, fmt.Errorf("the answer's message: %w", protowire.ParseError(m))
	}
	return body, nil
}

// fields calls a function for each field of a message, with its value if it is a number, or its bytes.
func fields(message []byte, each func(field protowire.Number, value uint64, bytes []byte)) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var value uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		each(field, value, bytes)
	}
	return nil
}
