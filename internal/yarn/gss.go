package yarn

import (
	"bytes"
	"crypto/hmac"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/crypto/etype"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// The GSS-API mechanism of Kerberos, RFC 4121, as far as an initiator needs it that does without mutual authentication.
// For RPC, the acceptor proves that it has the service's key when it answers with a message of the new subkey.

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
	if err := who.GenerateSeqNumberAndSubKey(with.key.KeyType, kind.GetKeyByteSize()); err != nil {
		return nil, nil, err
	}
	// The checksum has the length of channel bindings, none of them, and the flags.
	flags := make([]byte, 24)
	binary.LittleEndian.PutUint32(flags, 16)
	binary.LittleEndian.PutUint32(flags[20:], gssapi.ContextFlagConf|gssapi.ContextFlagInteg)
	who.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: flags}
	request, err := messages.NewAPReq(with.Ticket, with.key, who)
	if err != nil {
		return nil, nil, err
	}
	message, err := request.Marshal()
	if err != nil {
		return nil, nil, err
	}
	token, err := gssToken(gssapi.OIDKRB5, append([]byte{1, 0}, message...)) // TOK_ID of an AP-REQ
	return &gssContext{key: who.SubKey, kind: kind, sent: uint64(who.SeqNumber)}, token, err
}

// gssToken returns the first token of a mechanism, RFC 2743, section 3.1.
func gssToken(mechanism gssapi.OIDName, content []byte) ([]byte, error) {
	id, err := asn1.Marshal(asn1.ObjectIdentifier(mechanism.OID()))
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
	kinds := []asn1.ObjectIdentifier{asn1.ObjectIdentifier(gssapi.OIDKRB5.OID())}
	content, err := asn1.MarshalWithParams(negTokenInit{kinds, kerberos}, "explicit,tag:0")
	if err != nil {
		return nil, err
	}
	return gssToken(gssapi.OIDSPNEGO, content)
}

// Flags of a Wrap token, RFC 4121, section 4.2.6.2. gokrb5 has the token, but neither encrypts its content nor undoes
// its rotation.
const (
	sealed     = 2
	ofAcceptor = 4 // the key
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
	t := gssapi.WrapToken{SndSeqNum: g.sent, Payload: message}
	g.sent++
	if encrypt {
		header := binary.BigEndian.AppendUint64([]byte{5, 4, sealed, gssapi.FillerByte, 0, 0, 0, 0}, t.SndSeqNum)
		plain := append(bytes.Clone(message), header...)
		_, cipher, err := g.kind.EncryptMessage(g.key.KeyValue, plain, keyusage.GSSAPI_INITIATOR_SEAL)
		return append(header, cipher...), err
	}
	if err := t.SetCheckSum(g.key, keyusage.GSSAPI_INITIATOR_SEAL); err != nil {
		return nil, err
	}
	t.EC = uint16(len(t.CheckSum))
	return t.Marshal()
}

// unwrap returns the message of a Wrap token of the acceptor, and whether it was encrypted.
func (g *gssContext) unwrap(token []byte) (message []byte, encrypted bool, err error) {
	var t gssapi.WrapToken
	if err := t.Unmarshal(token, true); err != nil {
		return nil, false, fmt.Errorf("%d bytes are no Wrap token of the server: %w", len(token), err)
	}
	if t.Flags&ofAcceptor != 0 {
		return nil, false, fmt.Errorf("its flags are %#x: it is with a key of the server's own", t.Flags)
	}
	if g.started && t.SndSeqNum != g.received+1 {
		return nil, false, fmt.Errorf("message %d came after %d", t.SndSeqNum, g.received)
	}
	rest := token[gssapi.HdrLen:]
	if len(rest) > 0 {
		by := int(t.RRC) % len(rest)
		rest = append(bytes.Clone(rest[by:]), rest[:by]...)
	}
	if encrypted = t.Flags&sealed != 0; encrypted {
		message, err = g.unseal(token[:gssapi.HdrLen], rest, int(t.EC))
	} else {
		message, err = g.check(t, rest)
	}
	if err == nil {
		g.received, g.started = t.SndSeqNum, true
	}
	return message, encrypted, err
}

// check returns the message of a token with a checksum, which may have been rotated.
func (g *gssContext) check(t gssapi.WrapToken, rest []byte) ([]byte, error) {
	end := len(rest) - int(t.EC)
	t.Payload, t.CheckSum = rest[:end], rest[end:]
	if right, _ := t.Verify(g.key, keyusage.GSSAPI_ACCEPTOR_SEAL); !right { // the error would tell the right checksum
		return nil, errors.New("its checksum is wrong: the server does not have the service's key")
	}
	return t.Payload, nil
}

func (g *gssContext) unseal(header, rest []byte, extra int) ([]byte, error) {
	// gokrb5 expects at least that much.
	if least := g.kind.GetConfounderByteSize() + g.kind.GetHMACBitLength()/8; len(rest) < least+len(header) {
		return nil, errors.New("it is cut off")
	}
	plain, err := g.kind.DecryptMessage(g.key.KeyValue, rest, keyusage.GSSAPI_ACCEPTOR_SEAL)
	if err != nil {
		return nil, fmt.Errorf("the server does not have the service's key: %w", err)
	}
	end := len(plain) - len(header)
	if end < extra {
		return nil, errors.New("its encrypted part is cut off")
	}
	header = bytes.Clone(header)
	clear(header[6:8]) // the copy has no rotation
	if !hmac.Equal(plain[end:], header) {
		return nil, errors.New("its header was changed")
	}
	return plain[:end-extra], nil
}
