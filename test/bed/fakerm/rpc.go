package fakerm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// unrecognized is the beginning of what Hadoop 3.5.0 says of a node that it does not know.
const unrecognized = "Resource update get failed on all nodes due to change resource on an unrecognized node: "

// ServeRPC serves updateNodeResource of the administration protocol, until the listener is closed. Each connection has
// one call, without authentication.
func (r *RM) ServeRPC(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if answer, err := r.call(conn); err == nil {
				_, _ = conn.Write(answer) // the client may be gone
			}
		}()
	}
}

// call reads a call, and returns the frame of its answer.
func (r *RM) call(from io.Reader) ([]byte, error) {
	const header = 7
	if _, err := io.ReadFull(from, make([]byte, header)); err != nil {
		return nil, err
	}
	if _, err := frame(from); err != nil { // who calls
		return nil, err
	}
	content, err := frame(from)
	if err != nil {
		return nil, err
	}
	var parts [3][]byte // header, method, message
	for i := range parts {
		part, n := protowire.ConsumeBytes(content)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		parts[i], content = part, content[n:]
	}
	head := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 0) // the call's id
	if err := r.update(parts[1], parts[2]); err != nil {
		head = protowire.AppendVarint(protowire.AppendTag(head, 2, protowire.VarintType), 1) // ERROR
		const class = "org.apache.hadoop.yarn.exceptions.YarnException"
		head = protowire.AppendString(protowire.AppendTag(head, 4, protowire.BytesType), class)
		head = protowire.AppendString(protowire.AppendTag(head, 5, protowire.BytesType), err.Error())
	} else {
		head = protowire.AppendVarint(protowire.AppendTag(head, 2, protowire.VarintType), 0)
	}
	answer := protowire.AppendBytes(protowire.AppendBytes(nil, head), nil)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...), nil
}

func frame(from io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	content := make([]byte, min(binary.BigEndian.Uint32(length[:]), 16<<20))
	_, err := io.ReadFull(from, content)
	return content, err
}

// update gives nodes new totals, all or none.
func (r *RM) update(method, message []byte) error {
	if name := field(method, 1); string(name) != "updateNodeResource" {
		return fmt.Errorf("the method %q is not imitated", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count.Calls++
	if r.faults.Silent || r.faults.Standby {
		return errors.New("on standby")
	}
	type change struct {
		n  *node
		to Size
		ms int64
	}
	var all []change
	for len(message) > 0 {
		_, kind, n := protowire.ConsumeTag(message)
		entry, m := protowire.ConsumeBytes(message[max(n, 0):])
		if n < 0 || m < 0 || kind != protowire.BytesType {
			return errors.New("the message cannot be read")
		}
		message = message[n+m:]
		id, option := field(entry, 1), field(entry, 2)
		host := net.JoinHostPort(string(field(id, 1)), strconv.FormatInt(number(id, 2), 10))
		known := r.nodes[host]
		if known == nil || known.state == "" {
			return errors.New(unrecognized + host)
		}
		total := field(option, 1)
		all = append(all, change{known, Size{number(total, 1), number(total, 2)}, number(option, 2)})
	}
	for _, c := range all {
		r.set(c.n, c.to, time.Duration(c.ms)*time.Millisecond)
	}
	return nil
}

// field returns the bytes of a field of a message; nil if it has none.
func field(message []byte, want protowire.Number) []byte {
	content, _ := find(message, want)
	return content
}

// number returns a number of a message; 0 if it has none.
func number(message []byte, want protowire.Number) int64 {
	_, n := find(message, want)
	return n
}

func find(message []byte, want protowire.Number) (content []byte, number int64) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, 0
		}
		m := protowire.ConsumeFieldValue(field, kind, message[n:])
		if m < 0 {
			return nil, 0
		}
		if value := message[n : n+m]; field == want && kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(value)
			return content, 0
		} else if field == want && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(value)
			return nil, int64(v)
		}
		message = message[n+m:]
	}
	return nil, 0
}
