package impala

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// fake is a coordinator of Impala, with an executor's debug web server, as Impala's sources and documentation say they
// are. It is no real impalad: none is in a public registry.
type fake struct {
	t *testing.T

	mu         sync.Mutex
	statements []string
	refusal    string // the error of a statement
	deadline   string // of the shutdown; "": the executor is active
	grace      string
	queries    int
	gone       bool
	asked      int // looks at the statement
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.String() {
	case "/cliservice":
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Content-Type") != "application/x-thrift" {
			f.t.Errorf("the content type is %q", r.Header.Get("Content-Type"))
		}
		_, _ = w.Write(f.call(body))
	case "/backends?json":
		backends := []any{map[string]any{
			"krpc_address": "coordinator:27000", "address": "coordinator:27000", "is_active": true,
		}}
		if !f.gone {
			backends = append(backends, map[string]any{
				"krpc_address": "W1.pool:27000", "address": "W1.pool:27000", "is_active": f.deadline == "",
				"is_quiescing": f.deadline != "", "is_executor": true,
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"backends": backends})
	case "/?json":
		_ = json.NewEncoder(w).Encode(map[string]any{"is_quiescing": true, "shutdown_status": fmt.Sprintf(
			"shutdown grace period left: %s, deadline left: %s, cancel deadline left: 1s000ms, queries registered on "+
				"coordinator: 0, queries executing: %d, fragment instances: %d", f.grace, f.deadline, f.queries, 2*f.queries)})
	default:
		http.NotFound(w, r)
	}
}

// call answers a call of HiveServer2.
func (f *fake) call(message []byte) []byte {
	d := decoder{left: message}
	d.u32()
	method := string(d.binary())
	d.u32()
	argument, _ := d.fields(0)[1].(fields)
	status := fields{1: int32(0)}
	result := fields{1: status}
	handle := fields{1: fields{1: []byte("guid"), 2: []byte("secret")}}
	switch method {
	case "OpenSession":
		result[2], result[3] = protocolV6, handle
	case "ExecuteStatement":
		if fmt.Sprint(argument[1]) != fmt.Sprint(handle) {
			f.t.Errorf("the session is %v", argument[1])
		}
		f.statements = append(f.statements, string(argument[2].([]byte)))
		operation := fields{1: handle[1], 2: int32(0), 3: true, 4: 1.5}
		if result[2] = operation; f.refusal != "" {
			result[1] = fields{1: int32(3), 5: f.refusal}
		}
	case "GetOperationStatus":
		state := int32(1)
		if f.asked++; f.asked > 1 {
			state = finished
			f.deadline, f.grace = "10m", "5s000ms"
		}
		result[2] = state
	}
	b := []byte{0x80, 1, 0, reply}
	b = appendBinary(b, []byte(method))
	b = append(b, 0, 0, 0, 0, typeStruct, 0, 0)
	return append(appendStruct(b, result), typeStop)
}

func TestDrain(t *testing.T) {
	f := &fake{t: t, queries: 2}
	server := httptest.NewServer(f)
	defer server.Close()
	d, err := New(Options{Coordinator: server.URL, Web: server.URL, Auth: drain.Auth{User: "waterline"}})
	if err != nil {
		t.Fatal(err)
	}
	w := drain.Worker{Host: "w1.pool", URL: server.URL}
	is := func(state drain.State, work int) {
		t.Helper()
		s, err := d.Status(t.Context(), w)
		if err != nil || s.State != state || s.Work != work {
			t.Errorf("%+v, %v; want %s with %d", s, err, state, work)
		}
	}
	is(drain.Active, drain.UnknownWork)
	if err := d.Drain(t.Context(), w, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if want := ":SHUTDOWN('w1.pool:27000', 600)"; len(f.statements) != 1 || f.statements[0] != want {
		t.Errorf("the statements are %q, want %q", f.statements, want)
	}
	is(drain.Draining, 2)
	w.URL = "http://127.0.0.1:9" // the coordinator still says that it shuts down
	is(drain.Draining, drain.UnknownWork)
	w.URL = server.URL
	f.queries = 0
	is(drain.Draining, 0) // the grace period is not over
	f.grace = "0"
	is(drain.Drained, 0)
	f.gone = true
	is(drain.Absent, drain.UnknownWork)
	f.refusal = "AuthorizationException: User 'waterline' does not have privileges to access: server"
	if err := d.Drain(t.Context(), w, 0); err == nil || !strings.Contains(err.Error(), "privilege ALL") ||
		!strings.Contains(err.Error(), f.refusal) || errors.Is(err, drain.ErrCoordinator) {
		t.Errorf("a refused statement: %v", err)
	}
	evil := drain.Worker{Host: "a', 0) --"}
	if err := d.Drain(t.Context(), evil, 0); err == nil || len(f.statements) != 2 {
		t.Errorf("a host that is none reached the statement: %v, %q", err, f.statements)
	}
	server.Close()
	if _, err := d.Status(t.Context(), w); !errors.Is(err, drain.ErrCoordinator) {
		t.Errorf("no coordinator: %v", err)
	}
	if err := d.Drain(t.Context(), w, 0); !errors.Is(err, drain.ErrCoordinator) {
		t.Errorf("no coordinator: %v", err)
	}
}

// TestHungExecutor has an executor that takes connections and does not answer. It leaves time to ask others.
func TestHungExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(Options{Auth: drain.Auth{Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			return ours, nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s := d.quiescing(t.Context(), drain.Worker{Host: "w1.pool", URL: "http://w1.pool:25000"})
		if s.State != drain.Draining || !strings.Contains(s.Text, "w1.pool") || time.Since(began) != askTimeout {
			t.Errorf("after %s: %+v", time.Since(began), s)
		}
	})
}

// TestWire checks a message against bytes that were written by hand after Thrift's specification.
func TestWire(t *testing.T) {
	want := strings.Join([]string{
		"80010001",               // version 1, call
		"0000000b",               // 11 characters
		"4f70656e53657373696f6e", // OpenSession
		"00000000",               // sequence
		"0c0001",                 // field 1, a struct
		"080001", "00000005",     // field 1, an i32: protocol V6
		"0b0002", "00000001", "61", // field 2, a string: a
		"00", "00", // the ends of both structs
	}, "")
	got := encodeCall("OpenSession", fields{1: protocolV6, 2: "a"})
	if hex.EncodeToString(got) != want {
		t.Errorf("got  %x\nwant %s", got, want)
	}
}

// TestSkipped checks that lists, sets and maps, which no call needs, are read and not kept: a list of empty structs
// would take fifty times the memory of its bytes.
func TestSkipped(t *testing.T) {
	const n = 1000
	for kind, content := range map[byte][]byte{
		typeList: append([]byte{typeStruct, 0, 0, n >> 8, n & 0xff}, make([]byte, n)...),
		typeSet:  append([]byte{typeBool, 0, 0, n >> 8, n & 0xff}, make([]byte, n)...),
		typeMap:  append([]byte{typeBool, typeStruct, 0, 0, n >> 8, n & 0xff}, make([]byte, 2*n)...),
	} {
		b := append([]byte{0x80, 1, 0, reply, 0, 0, 0, 0, 0, 0, 0, 0, typeStruct, 0, 0, kind, 0, 7}, content...)
		b = append(b, typeBool, 0, 9, 1, typeStop, typeStop)
		result, err := decodeReply(b)
		if err != nil || result[7] != nil || result[9] != true {
			t.Errorf("type %d: field 7 is %T, field 9 is %v, %v", kind, result[7], result[9], err)
		}
	}
}

// TestLargeAnswers has a coordinator whose answers are larger than any that is needed.
func TestLargeAnswers(t *testing.T) {
	size := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, size))
	}))
	defer s.Close()
	d, err := New(Options{Coordinator: s.URL, Web: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := drain.Worker{Host: "w1.pool", URL: s.URL}
	size = maxReply + 1
	if err := d.Drain(t.Context(), w, 0); err == nil || !strings.Contains(err.Error(), "more than 262144 bytes") {
		t.Errorf("a reply: %v", err)
	}
	if s := d.quiescing(t.Context(), w); !strings.Contains(s.Text, "more than 262144 bytes") {
		t.Errorf("the page of an executor: %+v", s)
	}
	size = maxBackends + 1
	if _, err := d.Status(t.Context(), w); err == nil || !strings.Contains(err.Error(), "more than 2097152 bytes") {
		t.Errorf("the list of backends: %v", err)
	}
}

// TestFound checks that of the list of backends only the executor is kept, and that a list that is none is an error.
func TestFound(t *testing.T) {
	for list, want := range map[string]string{
		`[{}, {"address": "w2:1"}, {"krpc_address": "W1:1", "address": "x:1"}, {"address": "w1:2"}]`: "x:1",
		`[{"address": "w2:1"}]`: "none",
		`[]`:                    "none",
		`null`:                  "none",
		`{"w1": {}}`:            "error",
		`[[]]`:                  "error",
	} {
		f := finder{host: "w1"}
		got := "none"
		if err := json.Unmarshal([]byte(list), &f); err != nil {
			got = "error"
		} else if f.found != nil {
			got = f.found.Address
		}
		if got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
}

// FuzzReply checks that no answer makes the decoder panic or loop.
func FuzzReply(f *testing.F) {
	f.Add([]byte{0x80, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, typeStruct, 0, 0, typeStop, typeStop})
	f.Add([]byte{0x80, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, typeList, 0, 0, typeMap, 0xff, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{typeStruct, 0, 0}, 100))
	f.Fuzz(func(t *testing.T, answer []byte) {
		if result, err := decodeReply(answer); err == nil && result == nil {
			t.Error("neither a result nor an error")
		}
	})
}
