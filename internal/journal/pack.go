package journal

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// packed is a line as it is written: the text of a line, compressed. Numbers of many pods are most of a line, and much
// of them is as in the line before. So a line is compressed with what stands before it since the last one that is
// whole, and can be read only after that.
type packed struct {
	Format int    `json:",omitempty"` // [packedFormat], of a line that is whole
	GoesOn bool   `json:",omitempty"`
	Sum    uint32 // CRC-32 (IEEE) of the text
	Packed []byte // raw deflate (RFC 1951), up to a flush
}

// level is that of the compression. With 4, a node with 110 busy pods needs three quarters of the room that it needs
// with 1.
const level = 4

// window is how far back deflate looks, in bytes.
const window = 32 << 10

// packer compresses lines. It keeps its buffers.
type packer struct {
	compressor *flate.Writer
	bytes      bytes.Buffer
	line       []byte
}

// pack returns a line as it is written. It is valid until the next one.
func (p *packer) pack(l *line) ([]byte, error) {
	p.bytes.Reset()
	if p.compressor == nil {
		z, err := flate.NewWriter(&p.bytes, level)
		if err != nil {
			return nil, err
		}
		p.compressor = z
	}
	if !l.GoesOn {
		p.compressor.Reset(&p.bytes)
	}
	sum := crc32.NewIEEE()
	if err := json.NewEncoder(io.MultiWriter(sum, p.compressor)).Encode(l); err != nil {
		return nil, err
	}
	if err := p.compressor.Flush(); err != nil {
		return nil, err
	}
	p.line = append(p.line[:0], '{')
	if l.GoesOn {
		p.line = append(p.line, `"GoesOn":true,`...)
	} else {
		p.line = fmt.Appendf(p.line, `"Format":%d,`, packedFormat)
	}
	p.line = fmt.Appendf(p.line, `"Sum":%d,"Packed":"`, sum.Sum32())
	p.line = base64.StdEncoding.AppendEncode(p.line, p.bytes.Bytes())
	p.line = append(p.line, "\"}\n"...)
	return p.line, nil
}

// unpacker makes the text of lines from what was written. Lines of [textFormat] are text already.
type unpacker struct {
	past  []byte // the end of the text since the last whole line, which the next one was compressed with
	known bool   // past is right
}

// unpack returns the text of a line. It is valid until the next one.
func (u *unpacker) unpack(text []byte) ([]byte, error) {
	var p packed
	known := u.known
	u.known = false
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("not a round of a journal, or cut short: %w", err)
	}
	switch {
	case p.Format > packedFormat:
		return nil, fmt.Errorf("format %d is of a newer version of Waterline, and this one knows %d: "+
			"use the version that wrote the journal, or a newer one", p.Format, packedFormat)
	case p.Packed == nil:
		return text, nil
	case !p.GoesOn:
		u.past = u.past[:0]
	case !known:
		return nil, ErrNoBase
	}
	out := bytes.NewBuffer(u.past)
	from := flate.NewReaderDict(bytes.NewReader(p.Packed), u.past[max(len(u.past)-window, 0):])
	// A flush is not the end of what is compressed: that it ends there is no error.
	if _, err := io.Copy(out, io.LimitReader(from, maxLine)); !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("unpacking a line: %w", errors.Join(errors.New("it does not end with a flush"), err))
	}
	line := out.Bytes()[len(u.past):]
	if crc32.ChecksumIEEE(line) != p.Sum {
		return nil, errors.New("unpacking a line: its checksum differs")
	}
	u.past, u.known = out.Bytes(), true
	if len(u.past) > window {
		u.past = u.past[len(u.past)-window:]
	}
	return line, nil
}
