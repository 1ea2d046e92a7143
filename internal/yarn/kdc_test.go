package yarn

import (
	"context"
	"encoding/asn1"
	"sync"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/msgtype"
	"github.com/jcmturner/gokrb5/v8/iana/patype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

const (
	testRealm = "BED"
	testKey   = etypeID.AES256_CTS_HMAC_SHA1_96
)

// testKDC is a KDC that is called as a function. It speaks as RFC 4120 says, without the network.
type testKDC struct {
	keys keytab.Keytab // of clients and services
	life time.Duration
	skew time.Duration // by how much its clock is ahead
	open bool          // it demands no pre-authentication

	mu       sync.Mutex
	logins   int
	services []string // whose tickets were asked for
	fail     int      // how many requests for services' tickets to refuse
}

func newKDC(t testing.TB) *testKDC {
	t.Helper()
	k := &testKDC{life: time.Hour}
	k.keys = *keytab.New()
	for _, principal := range []string{"waterline", "HTTP/127.0.0.1", "rm/rm1.bed", "krbtgt/BED"} {
		k.add(t, principal, "secret of "+principal)
	}
	return k
}

func (k *testKDC) add(t testing.TB, principal, password string) {
	t.Helper()
	if err := k.keys.AddEntry(principal, testRealm, password, time.Now(), 1, testKey); err != nil {
		t.Fatal(err)
	}
}

const testConfig = "[libdefaults]\n default_realm = BED\n[realms]\n BED = {\n  kdc = 127.0.0.1:1\n }\n"

// kerberos returns what identifies a principal with the key of a password.
func kerberos(t testing.TB, principal, password string) *Kerberos {
	t.Helper()
	kt := keytab.New()
	if err := kt.AddEntry(principal, testRealm, password, time.Now(), 1, testKey); err != nil {
		t.Fatal(err)
	}
	content, err := kt.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &Kerberos{Principal: principal, Keytab: content, Config: []byte(testConfig)}
}

// client returns tickets of the principal waterline from this KDC.
func (k *testKDC) client(t testing.TB) *tickets {
	t.Helper()
	return k.tickets(t, kerberos(t, "waterline", "secret of waterline"))
}

func (k *testKDC) tickets(t testing.TB, who *Kerberos) *tickets {
	t.Helper()
	got, err := Auth{Kerberos: who}.tickets()
	if err != nil {
		t.Fatal(err)
	}
	got.send = func(_ context.Context, _ string, request []byte) ([]byte, error) { return k.reply(request) }
	return got
}

func (k *testKDC) now() time.Time { return time.Now().Add(k.skew).UTC().Truncate(time.Second) }

func (k *testKDC) reply(request []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var login messages.ASReq
	if login.Unmarshal(request) == nil {
		return k.login(login)
	}
	var grant messages.TGSReq
	if err := grant.Unmarshal(request); err != nil {
		return nil, err
	}
	return k.grant(grant)
}

func (k *testKDC) refuse(code int32, data []byte) ([]byte, error) {
	e := messages.NewKRBError(types.NewPrincipalName(2, "krbtgt/BED"), testRealm, code, "")
	e.STime, e.EData = k.now(), data
	return e.Marshal()
}

func (k *testKDC) login(r messages.ASReq) ([]byte, error) {
	key, _, err := k.keys.GetEncryptionKey(r.ReqBody.CName, testRealm, 0, testKey)
	if err != nil {
		return k.refuse(errorcode.KDC_ERR_C_PRINCIPAL_UNKNOWN, nil)
	}
	for _, pa := range r.PAData {
		if pa.PADataType != patype.PA_ENC_TIMESTAMP {
			continue
		}
		var sealed types.EncryptedData
		if err := sealed.Unmarshal(pa.PADataValue); err != nil {
			return nil, err
		}
		plain, err := crypto.DecryptEncPart(sealed, key, keyusage.AS_REQ_PA_ENC_TIMESTAMP)
		if err != nil {
			return k.refuse(errorcode.KDC_ERR_PREAUTH_FAILED, nil)
		}
		var at types.PAEncTSEnc
		if err := at.Unmarshal(plain); err != nil {
			return nil, err
		}
		if k.now().Sub(at.PATimestamp).Abs() > 5*time.Minute {
			return k.refuse(errorcode.KRB_AP_ERR_SKEW, nil)
		}
		return k.welcome(r.ReqBody, key)
	}
	if k.open {
		return k.welcome(r.ReqBody, key)
	}
	type info struct {
		EType int32 `asn1:"explicit,tag:0"`
	}
	infos, err := asn1.Marshal([]info{{etypeID.RC4_HMAC}, {testKey}})
	if err != nil {
		return nil, err
	}
	data, err := asn1.Marshal(types.PADataSequence{{PADataType: patype.PA_ETYPE_INFO2, PADataValue: infos}})
	if err != nil {
		return nil, err
	}
	return k.refuse(errorcode.KDC_ERR_PREAUTH_REQUIRED, data)
}

func (k *testKDC) welcome(r messages.KDCReqBody, key types.EncryptionKey) ([]byte, error) {
	k.logins++
	fields, part, err := k.ticket(r)
	if err != nil {
		return nil, err
	}
	fields.EncPart, err = crypto.GetEncryptedData(part, key, keyusage.AS_REP_ENCPART, 1)
	fields.MsgType = msgtype.KRB_AS_REP
	answer := messages.ASRep{KDCRepFields: fields}
	return marshal(answer.Marshal, err)
}

func (k *testKDC) grant(r messages.TGSReq) ([]byte, error) {
	service := r.ReqBody.SName.PrincipalNameString()
	k.services = append(k.services, service)
	if k.fail > 0 {
		k.fail--
		return k.refuse(errorcode.KRB_AP_ERR_TKT_EXPIRED, nil)
	}
	if _, _, err := k.keys.GetEncryptionKey(r.ReqBody.SName, testRealm, 0, testKey); err != nil {
		return k.refuse(errorcode.KDC_ERR_S_PRINCIPAL_UNKNOWN, nil)
	}
	var with messages.APReq
	if err := with.Unmarshal(r.PAData[0].PADataValue); err != nil {
		return nil, err
	}
	if err := with.Ticket.DecryptEncPart(&k.keys, nil); err != nil {
		return nil, err
	}
	r.ReqBody.CName = with.Ticket.DecryptedEncPart.CName
	fields, part, err := k.ticket(r.ReqBody)
	if err != nil {
		return nil, err
	}
	fields.EncPart, err = crypto.GetEncryptedData(part, with.Ticket.DecryptedEncPart.Key,
		keyusage.TGS_REP_ENCPART_SESSION_KEY, 1)
	fields.MsgType = msgtype.KRB_TGS_REP
	answer := messages.TGSRep{KDCRepFields: fields}
	return marshal(answer.Marshal, err)
}

func marshal(answer func() ([]byte, error), err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return answer()
}

// ticket returns a reply's fields with a ticket, and the part that is to be encrypted.
func (k *testKDC) ticket(r messages.KDCReqBody) (messages.KDCRepFields, []byte, error) {
	now := k.now()
	end := now.Add(k.life)
	t, key, err := messages.NewTicket(r.CName, testRealm, r.SName, testRealm, types.NewKrbFlags(), &k.keys, testKey, 1,
		now, now, end, end)
	if err != nil {
		return messages.KDCRepFields{}, nil, err
	}
	part := messages.EncKDCRepPart{
		Key: key, LastReqs: []messages.LastReq{{LRValue: now}}, Nonce: r.Nonce, Flags: types.NewKrbFlags(), AuthTime: now,
		StartTime: now, EndTime: end, SRealm: testRealm, SName: r.SName,
	}
	content, err := part.Marshal()
	return messages.KDCRepFields{PVNO: 5, CRealm: testRealm, CName: r.CName, Ticket: t}, content, err
}
