package impala

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// The part of Thrift's binary protocol that a call of HiveServer2 needs. A struct is a [fields]. Lists, sets
// and maps, which no call needs, are read and left out.
// Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-binary-protocol.md

// fields are the fields of a struct by their numbers.
type fields map[int16]any

// The types of values.
const (
	typeStop   = 0
	typeBool   = 2
	typeByte   = 3
	typeDouble = 4
	typeI16    = 6
	typeI32    = 8
	typeI64    = 10
	typeBinary = 11 // and strings
	typeStruct = 12
	typeMap    = 13
	typeSet    = 14
	typeList   = 15
)

// The first word of a message says the version and the kind.
const (
	version   = 0x80010000
	kindMask  = 0xff
	call      = 1
	reply     = 2
	exception = 3
)

// maxDepth bounds structs in structs. Those of HiveServer2 have five.
const maxDepth = 16

var errShort = errors.New("the answer ends too early")

// encodeCall returns the message that calls a method with one argument.
func encodeCall(method string, argument fields) []byte {
	b := binary.BigEndian.AppendUint32(nil, version|call)
	b = appendBinary(b, []byte(method))
	b = binary.BigEndian.AppendUint32(b, 0) // sequence
	b = append(b, typeStruct, 0, 1)         // the argument is field 1
	b = appendStruct(b, argument)
	return append(b, typeStop)
}

// appendStruct writes the fields of a struct, by number.
func appendStruct(b []byte, s fields) []byte {
	for _, number := range slices.Sorted(maps.Keys(s)) {
		kind, value := appendValue(s[number])
		b = append(b, kind)
		b = binary.BigEndian.AppendUint16(b, uint16(number))
		b = append(b, value...)
	}
	return append(b, typeStop)
}

// appendValue returns the type and the bytes of a value that [decoder] gives.
func appendValue(v any) (kind byte, b []byte) {
	switch v := v.(type) {
	case bool:
		if v {
			return typeBool, []byte{1}
		}
		return typeBool, []byte{0}
	case int32:
		return typeI32, binary.BigEndian.AppendUint32(nil, uint32(v))
	case int64:
		return typeI64, binary.BigEndian.AppendUint64(nil, uint64(v))
	case float64:
		return typeDouble, binary.BigEndian.AppendUint64(nil, math.Float64bits(v))
	case []byte:
		return typeBinary, appendBinary(nil, v)
	case string:
		return typeBinary, appendBinary(nil, []byte(v))
	case fields:
		return typeStruct, appendStruct(nil, v)
	}
	return typeStruct, []byte{typeStop} // nothing of that kind is written
}

func appendBinary(b, value []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}

// decodeReply returns the result of a call: field 0 of the answer's struct.
func decodeReply(answer []byte) (fields, error) {
	d := decoder{left: answer}
	head := d.u32()
	d.binary() // the name
	d.u32()
	if d.err == nil && head&^kindMask != version {
		return nil, fmt.Errorf("it begins with %#08x, not a message of Thrift's binary protocol", head)
	}
	s := d.fields(0)
	switch {
	case d.err != nil:
		return nil, d.err
	case head&kindMask == exception: // TApplicationException
		text, _ := s[1].([]byte)
		return nil, fmt.Errorf("the server does not take the call: %q", text)
	case head&kindMask != reply:
		return nil, fmt.Errorf("the message is of kind %d, not a reply", head&kindMask)
	}
	result, found := s[0].(fields)
	if !found {
		return nil, errors.New("the reply has no result")
	}
	return result, nil
}

// decoder reads values. After an error, everything that it reads is zero.
type decoder struct {
	left []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.left) {
		if d.err == nil {
			d.err = errShort
		}
		d.left = nil
		return make([]byte, 8)[:min(max(n, 0), 8)]
	}
	b := d.left[:n]
	d.left = d.left[n:]
	return b
}

func (d *decoder) u8() byte    { return d.take(1)[0] }
func (d *decoder) u16() uint16 { return binary.BigEndian.Uint16(d.take(2)) }
func (d *decoder) u32() uint32 { return binary.BigEndian.Uint32(d.take(4)) }
func (d *decoder) u64() uint64 { return binary.BigEndian.Uint64(d.take(8)) }

func (d *decoder) binary() []byte { return d.take(int(int32(d.u32()))) }

func (d *decoder) fields(depth int) fields {
	s := fields{}
	for d.err == nil {
		kind := d.u8()
		if kind == typeStop {
			return s
		}
		number := int16(d.u16())
		s[number] = d.value(kind, depth)
	}
	return s
}

func (d *decoder) value(kind byte, depth int) any {
	if depth > maxDepth && d.err == nil {
		d.err = fmt.Errorf("it has structs in structs, more than %d deep", maxDepth)
	}
	switch kind {
	case typeBool:
		return d.u8() != 0
	case typeByte:
		return d.u8()
	case typeI16:
		return int16(d.u16())
	case typeI32:
		return int32(d.u32())
	case typeI64:
		return int64(d.u64())
	case typeDouble:
		return math.Float64frombits(d.u64())
	case typeBinary:
		return d.binary()
	case typeStruct:
		return d.fields(depth + 1)
	case typeMap:
		keys, values, n := d.u8(), d.u8(), d.u32()
		for i := uint32(0); i < n && d.err == nil; i++ {
			d.value(keys, depth+1)
			d.value(values, depth+1)
		}
		return nil
	case typeList, typeSet:
		of, n := d.u8(), d.u32()
		for i := uint32(0); i < n && d.err == nil; i++ {
			d.value(of, depth+1)
		}
		return nil
	}
	if d.err == nil {
		d.err = fmt.Errorf("it has a value of the unknown type %d", kind)
	}
	return nil
}
