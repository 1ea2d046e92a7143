package yarn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/iana/patype"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// The exchanges with the KDC, RFC 4120. gokrb5 has the messages. Its client is not used, because it takes no context,
// allocates what the KDC promises to send, and keeps a goroutine for each login.

const (
	kdcTimeout = 5 * time.Second // of one KDC
	kdcSilence = time.Second     // of one KDC, after which the next is asked too
	maxReply   = 1 << 20         // bytes; a ticket with the groups of Active Directory has up to 64 kB
)

// errUnreachable is returned if no KDC of a realm answered.
var errUnreachable = errors.New("no KDC answered")

// kdcs returns the addresses of a realm's KDCs.
func (t *tickets) kdcs(ctx context.Context, realm string) ([]string, error) {
	for _, r := range t.config.Realms {
		if r.Realm == realm && len(r.KDC) > 0 {
			return r.KDC, nil
		}
	}
	if !t.config.LibDefaults.DNSLookupKDC {
		return nil, fmt.Errorf("the Kerberos configuration names no kdc of the realm %s", realm)
	}
	_, records, err := net.DefaultResolver.LookupSRV(ctx, "kerberos", "tcp", realm)
	if err != nil {
		return nil, fmt.Errorf("%w: looking up the realm %s: %w", errUnreachable, realm, err)
	}
	var all []string
	for _, r := range records {
		all = append(all, net.JoinHostPort(strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port))))
	}
	return all, nil
}

// ask sends a request to a realm's KDCs, and returns the first reply. It begins with the KDC that replied last. If one
// is silent for a while, it asks the next one too. The error is a [messages.KRBError] if that is what a KDC replied.
func (t *tickets) ask(ctx context.Context, realm string, request []byte) ([]byte, error) {
	addresses, err := t.kdcs(ctx, realm)
	if err != nil {
		return nil, err
	}
	first := max(slices.Index(addresses, t.replied[realm]), 0)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the requests that are still open
	type reply struct {
		from    string
		content []byte
		err     error
	}
	replies := make(chan reply, len(addresses))
	failed := []error{errUnreachable}
	patience := time.NewTimer(0)
	defer patience.Stop()
	for asked := 0; len(failed) <= len(addresses); {
		silent := patience.C
		if asked == len(addresses) {
			silent = nil
		}
		select {
		case <-silent:
			address := addresses[(first+asked)%len(addresses)]
			go func() {
				content, err := t.send(ctx, address, request)
				replies <- reply{address, content, err}
			}()
			asked++
			patience.Reset(kdcSilence)
			continue
		case r := <-replies:
			var refused messages.KRBError
			switch isError := r.err == nil && withoutPanic(func() error { return refused.Unmarshal(r.content) }) == nil; {
			case r.err != nil:
				failed = append(failed, r.err)
			case !isError:
				t.replied[realm] = r.from
				return r.content, nil
			case refused.ErrorCode != errorcode.KDC_ERR_SVC_UNAVAILABLE:
				t.replied[realm] = r.from
				return nil, refused
			default:
				failed = append(failed, fmt.Errorf("%s: %w", r.from, refused))
			}
			patience.Reset(0)
		}
	}
	return nil, errors.Join(failed...)
}

// askKDC returns a function that sends a request to a KDC over such a connection, and returns its reply.
func askKDC(dial Dial) func(ctx context.Context, address string, request []byte) ([]byte, error) {
	return func(ctx context.Context, address string, request []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, kdcTimeout)
		defer cancel()
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return nil, err // it names the address
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
		length := binary.BigEndian.AppendUint32(nil, uint32(len(request)))
		if _, err := conn.Write(append(length, request...)); err != nil {
			return nil, fmt.Errorf("%s: %w", address, errors.Join(err, ctx.Err()))
		}
		reply, err := readBounded(conn, maxReply)
		if err != nil {
			return nil, fmt.Errorf("reading the reply of %s: %w", address, errors.Join(err, ctx.Err()))
		}
		return reply, nil
	}
}

// login gets a ticket-granting ticket with a key of the keytab.
func (t *tickets) login(ctx context.Context) (ticket, error) {
	request, err := messages.NewASReqForTGT(t.realm, t.config, t.name)
	if err != nil {
		return ticket{}, err
	}
	// The KDC would otherwise choose a type that the keytab has no key of.
	request.ReqBody.EType = t.etypes
	reply, err := t.sendLogin(ctx, request)
	var refused messages.KRBError
	if errors.As(err, &refused) && refused.ErrorCode == errorcode.KDC_ERR_PREAUTH_REQUIRED {
		if err := t.preauthenticate(&request, refused); err != nil {
			return ticket{}, err
		}
		reply, err = t.sendLogin(ctx, request)
	}
	if err != nil {
		return ticket{}, err
	}
	var answer messages.ASRep
	err = withoutPanic(func() error {
		if err := answer.Unmarshal(reply); err != nil {
			return err
		}
		who := credentials.NewFromPrincipalName(t.name, t.realm).WithKeytab(t.keytab)
		_, err := answer.Verify(t.config, who, request)
		return err
	})
	got := newTicket(answer.Ticket, answer.DecryptedEncPart)
	if skew := time.Since(answer.DecryptedEncPart.AuthTime); err != nil && got.key.KeyValue != nil &&
		skew.Abs() > t.config.LibDefaults.Clockskew {
		return ticket{}, &skewError{skew}
	}
	if err != nil {
		return ticket{}, fmt.Errorf("the KDC's reply to the login: %w", err)
	}
	return got, nil
}

func (t *tickets) sendLogin(ctx context.Context, request messages.ASReq) ([]byte, error) {
	message, err := request.Marshal()
	if err != nil {
		return nil, err
	}
	return t.ask(ctx, t.realm, message)
}

// preauthenticate adds what proves to the KDC that the caller has a key: the time, encrypted.
func (t *tickets) preauthenticate(request *messages.ASReq, refused messages.KRBError) error {
	etype := t.etypes[0]
	// The KDC lists the types that it has keys of, the preferred one first. Without a list any may do.
	if offered := offeredTypes(refused.EData); len(offered) > 0 {
		etype = 0
		for _, e := range offered {
			if _, _, err := t.keytab.GetEncryptionKey(t.name, t.realm, 0, e); err == nil {
				etype = e
				break
			}
		}
		if etype == 0 {
			return messages.NewKRBError(refused.SName, refused.Realm, errorcode.KDC_ERR_ETYPE_NOSUPP, "")
		}
	}
	key, version, err := t.keytab.GetEncryptionKey(t.name, t.realm, 0, etype)
	if err != nil {
		return err
	}
	now, err := types.GetPAEncTSEncAsnMarshalled()
	if err != nil {
		return err
	}
	proof, err := crypto.GetEncryptedData(now, key, keyusage.AS_REQ_PA_ENC_TIMESTAMP, version)
	if err != nil {
		return err
	}
	message, err := proof.Marshal()
	if err != nil {
		return err
	}
	request.PAData = append(request.PAData, types.PAData{PADataType: patype.PA_ENC_TIMESTAMP, PADataValue: message})
	return nil
}

// offeredTypes returns the encryption types that a KDC offers when it demands pre-authentication.
func offeredTypes(data []byte) []int32 {
	var all []int32
	_ = withoutPanic(func() error {
		var sequence types.PADataSequence
		if err := sequence.Unmarshal(data); err != nil {
			return err
		}
		for _, pa := range sequence {
			if pa.PADataType != patype.PA_ETYPE_INFO2 {
				continue
			}
			infos, err := pa.GetETypeInfo2()
			if err != nil {
				return err
			}
			for _, info := range infos {
				all = append(all, info.EType)
			}
		}
		return nil
	})
	return all
}

// grant gets a ticket of a service in a realm with a ticket-granting ticket, and follows the KDCs' referrals to other
// realms.
func (t *tickets) grant(ctx context.Context, granting ticket, name types.PrincipalName, realm string) (ticket, error) {
	const hops = 5
	at := t.realm
	for range hops {
		want := name
		if at != realm {
			want = types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", realm}}
		}
		var request messages.TGSReq
		var message []byte
		err := withoutPanic(func() (err error) {
			request, err = messages.NewTGSReq(t.name, at, t.config, granting.Ticket, granting.key, want, false)
			if err == nil {
				message, err = request.Marshal()
			}
			return err
		})
		if err != nil {
			return ticket{}, err
		}
		reply, err := t.ask(ctx, at, message)
		if err != nil {
			return ticket{}, err
		}
		var answer messages.TGSRep
		err = withoutPanic(func() error {
			if err := answer.Unmarshal(reply); err != nil {
				return err
			}
			if err := answer.DecryptEncPart(granting.key); err != nil {
				return err
			}
			_, err := answer.Verify(t.config, request)
			return err
		})
		if err != nil {
			return ticket{}, fmt.Errorf("the KDC's reply: %w", err)
		}
		got := newTicket(answer.Ticket, answer.DecryptedEncPart)
		given := answer.DecryptedEncPart.SName
		if at == realm && given.Equal(name) {
			return got, nil
		}
		if len(given.NameString) != 2 || given.NameString[0] != "krbtgt" {
			return ticket{}, fmt.Errorf("the KDC gave a ticket for %s instead", given.PrincipalNameString())
		}
		if at = given.NameString[1]; want.Equal(name) {
			realm = at // this KDC knows better where the service is
		}
		granting = got
	}
	return ticket{}, fmt.Errorf("the KDCs refer to more than %d realms", hops)
}
