package yarn

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/crypto/etype"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// The GSS-API mechanism of Kerberos, RFC 4121, as far as an initiator needs it that does without mutual authentication.
// For RPC, the acceptor proves that it has the service's key when it answers with a message of the new subkey.

// Flags of a context.
const (
	gssConfidential = 16
	gssIntegrity    = 32
)

// gssContext protects messages between initiator and acceptor.
type gssContext struct {
	key  types.EncryptionKey
	kind etype.EType
	sent uint64 // number of the next message
	// received is the number of the last message; known after the first.
	received uint64
	started  bool
}

// initiate returns a context and the token that makes the acceptor accept it.
func (t *tickets) initiate(with ticket) (*gssContext, []byte, error) {
	kind, err := crypto.GetEtype(with.key.KeyType)
	if err != nil {
		return nil, nil, err
	}
	who, err := types.NewAuthenticator(t.realm, t.name)
	if err != nil {
		return nil, nil, err
	}
	subkey := make([]byte, kind.GetKeyByteSize())
	if _, err := rand.Read(subkey); err != nil {
		return nil, nil, err
	}
	who.SubKey = types.EncryptionKey{KeyType: with.key.KeyType, KeyValue: subkey}
	// The checksum has the length of channel bindings, none of them, and the flags.
	flags := make([]byte, 24)
	binary.LittleEndian.PutUint32(flags, 16)
	binary.LittleEndian.PutUint32(flags[20:], gssConfidential|gssIntegrity)
	who.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: flags}
	request, err := messages.NewAPReq(with.Ticket, with.key, who)
	if err != nil {
		return nil, nil, err
	}
	message, err := request.Marshal()
	if err != nil {
		return nil, nil, err
	}
	token, err := gssToken(oidKerberos(), append([]byte{1, 0}, message...)) // TOK_ID of an AP-REQ
	return &gssContext{key: who.SubKey, kind: kind, sent: uint64(who.SeqNumber)}, token, err
}

func oidKerberos() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 113554, 1, 2, 2} }
func oidSPNEGO() asn1.ObjectIdentifier   { return asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 2} }

// gssToken returns the first token of a mechanism, RFC 2743, section 3.1.
func gssToken(mechanism asn1.ObjectIdentifier, content []byte) ([]byte, error) {
	id, err := asn1.Marshal(mechanism)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(asn1.RawValue{Class: asn1.ClassApplication, IsCompound: true, Bytes: append(id, content...)})
}

// spnegoToken returns the token of SPNEGO, RFC 4178, section 4.2.1, that offers Kerberos and has its first token.
func spnegoToken(kerberos []byte) ([]byte, error) {
	type negTokenInit struct {
		Mechanisms []asn1.ObjectIdentifier `asn1:"explicit,tag:0"`
		Token      []byte                  `asn1:"explicit,tag:2"`
	}
	content, err := asn1.MarshalWithParams(negTokenInit{[]asn1.ObjectIdentifier{oidKerberos()}, kerberos},
		"explicit,tag:0")
	if err != nil {
		return nil, err
	}
	return gssToken(oidSPNEGO(), content)
}

// A Wrap token, RFC 4121, section 4.2.6.2: two bytes that identify it, flags, 0xFF, the lengths of what is added and
// by how much the rest is rotated, and the message's number.
const (
	wrapHeader   = 16
	fromAcceptor = 1
	sealed       = 2
	ofAcceptor   = 4 // the key
)

// usable returns an error if the context's encryption type has other Wrap tokens.
func (g *gssContext) usable() error {
	switch g.key.KeyType {
	case etypeID.AES256_CTS_HMAC_SHA1_96, etypeID.AES128_CTS_HMAC_SHA1_96, etypeID.AES256_CTS_HMAC_SHA384_192,
		etypeID.AES128_CTS_HMAC_SHA256_128:
		return nil
	}
	return fmt.Errorf("the KDC gave a session key of encryption type %d, and only AES is supported; give the service's "+
		"principal AES keys", g.key.KeyType)
}

// wrap returns a Wrap token with a message, encrypted or with a checksum.
func (g *gssContext) wrap(message []byte, encrypt bool) ([]byte, error) {
	header := make([]byte, wrapHeader)
	copy(header, []byte{5, 4, 0, 0xff})
	binary.BigEndian.PutUint64(header[8:], g.sent)
	g.sent++
	if encrypt {
		header[2] |= sealed
		plain := append(append([]byte(nil), message...), header...)
		_, cipher, err := g.kind.EncryptMessage(g.key.KeyValue, plain, keyusage.GSSAPI_INITIATOR_SEAL)
		return append(header, cipher...), err
	}
	sum, err := g.sum(message, header, keyusage.GSSAPI_INITIATOR_SEAL)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(header[4:], uint16(len(sum)))
	return append(append(header, message...), sum...), nil
}

// sum returns the checksum of a message and of a header without its two lengths.
func (g *gssContext) sum(message, header []byte, usage uint32) ([]byte, error) {
	all := append(append([]byte(nil), message...), header...)
	clear(all[len(message)+4 : len(message)+8])
	return g.kind.GetChecksumHash(g.key.KeyValue, all, usage)
}

// unwrap returns the message of a Wrap token of the acceptor, and whether it was encrypted.
func (g *gssContext) unwrap(token []byte) (message []byte, encrypted bool, err error) {
	if len(token) < wrapHeader || token[0] != 5 || token[1] != 4 || token[3] != 0xff {
		return nil, false, fmt.Errorf("%d bytes that start with %q are no Wrap token", len(token), token[:min(len(token), 4)])
	}
	header, rest := append([]byte(nil), token[:wrapHeader]...), token[wrapHeader:]
	if header[2]&fromAcceptor == 0 || header[2]&ofAcceptor != 0 {
		return nil, false, fmt.Errorf("its flags are %#x: it is not the server's, or with a key of its own", header[2])
	}
	extra := int(binary.BigEndian.Uint16(header[4:]))
	number := binary.BigEndian.Uint64(header[8:])
	if g.started && number != g.received+1 {
		return nil, false, fmt.Errorf("message %d came after %d", number, g.received)
	}
	if len(rest) > 0 {
		by := int(binary.BigEndian.Uint16(header[6:])) % len(rest)
		rest = append(append([]byte(nil), rest[by:]...), rest[:by]...)
	}
	if encrypted = header[2]&sealed != 0; encrypted {
		message, err = g.unseal(header, rest, extra)
	} else {
		message, err = g.check(header, rest, extra)
	}
	if err == nil {
		g.received, g.started = number, true
	}
	return message, encrypted, err
}

func (g *gssContext) check(header, rest []byte, extra int) ([]byte, error) {
	if extra > len(rest) {
		return nil, errors.New("its checksum is cut off")
	}
	message, sum := rest[:len(rest)-extra], rest[len(rest)-extra:]
	want, err := g.sum(message, header, keyusage.GSSAPI_ACCEPTOR_SEAL)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(sum, want) {
		return nil, errors.New("its checksum is wrong: the server does not have the service's key")
	}
	return message, nil
}

func (g *gssContext) unseal(header, rest []byte, extra int) ([]byte, error) {
	// gokrb5 expects at least that much.
	if least := g.kind.GetConfounderByteSize() + g.kind.GetHMACBitLength()/8; len(rest) < least+wrapHeader {
		return nil, errors.New("it is cut off")
	}
	plain, err := g.kind.DecryptMessage(g.key.KeyValue, rest, keyusage.GSSAPI_ACCEPTOR_SEAL)
	if err != nil {
		return nil, fmt.Errorf("the server does not have the service's key: %w", err)
	}
	if len(plain) < wrapHeader+extra {
		return nil, errors.New("its encrypted part is cut off")
	}
	clear(header[6:8]) // the copy has no rotation
	if !hmac.Equal(plain[len(plain)-wrapHeader:], header) {
		return nil, errors.New("its header was changed")
	}
	return plain[:len(plain)-wrapHeader-extra], nil
}
