package predict

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

// version is the version of the text. The previous one is read without its errors, which were those of another base and
// in another unit.
const (
	version  = 2
	previous = 1
)

// rawLength is that of what the text encodes.
const rawLength = 2 + 4*8 + past*2 + 3*2 + 2*2*(hourQuarters+dayQuarters) + int(model.Horizons)*4*(bins+3)

// MarshalText writes all that is remembered: about 3 KB, always of the same length.
func (p *Predictor) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, rawLength)
	raw = append(raw, version, 0)
	if p.seen {
		raw[1] = 1
	}
	raw = binary.LittleEndian.AppendUint64(raw, uint64(p.last))
	for _, v := range []float64{p.value, p.mean, p.spread} {
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
	}
	for _, v := range p.peaks {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(v))
	}
	for _, v := range []peak{p.around, p.highest, peak(p.count)} {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(v))
	}
	for h := range model.Horizons {
		e := &p.errors[h]
		for _, a := range e.open[:quarters(h)] {
			raw = binary.LittleEndian.AppendUint16(raw, uint16(a.base))
			raw = binary.LittleEndian.AppendUint16(raw, uint16(a.peak))
		}
		for _, v := range append([]float32{e.none, e.misses, e.checked}, e.excess[:]...) {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
	}
	text := make([]byte, base64.StdEncoding.EncodedLen(len(raw)))
	base64.StdEncoding.Encode(text, raw)
	return text, nil
}

// UnmarshalText reads what MarshalText wrote. After an error the predictor is as it was.
func (p *Predictor) UnmarshalText(text []byte) error {
	raw := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(raw, text)
	switch {
	case err != nil:
		return fmt.Errorf("reading a predictor's state: %w", err)
	case n == 0 || raw[0] != version && raw[0] != previous:
		return fmt.Errorf("reading a predictor's state: not of version %d or %d", previous, version)
	}
	length := rawLength
	if raw[0] == previous {
		length += 2
	}
	if n != length {
		return fmt.Errorf("reading a predictor's state: %d bytes, not %d", n, length)
	}
	r := reader{rest: raw[2:]}
	read := Predictor{seen: raw[1] == 1, last: int64(r.uint64())}
	for _, v := range []*float64{&read.value, &read.mean, &read.spread} {
		*v = r.number(math.Float64frombits(r.uint64()))
	}
	for i := range read.peaks {
		read.peaks[i] = r.peak()
	}
	read.around = r.peak()
	if raw[0] == previous {
		r.peak() // exceeded in a fifth of the last day's quarter-hours
	}
	read.highest = r.peak()
	if read.count = int(r.uint16()); read.count > past {
		r.bad = true
	}
	for h := range model.Horizons {
		e := &read.errors[h]
		for i := range quarters(h) {
			e.open[i] = asked{r.peak(), r.peak()}
		}
		e.none, e.misses, e.checked = r.weight(), r.weight(), r.weight()
		for i := range e.excess {
			e.excess[i] = r.weight()
		}
	}
	if raw[0] == previous {
		read.errors = [model.Horizons]record{}
	}
	if r.bad {
		return fmt.Errorf("reading a predictor's state: a value is out of its range")
	}
	*p = read
	return nil
}

// reader takes values from the front of what is left, which must be enough.
type reader struct {
	rest []byte
	bad  bool // a value was out of its range
}

func (r *reader) uint64() uint64 {
	v := binary.LittleEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return v
}

func (r *reader) uint16() uint16 {
	v := binary.LittleEndian.Uint16(r.rest)
	r.rest = r.rest[2:]
	return v
}

func (r *reader) peak() peak {
	p := peak(r.uint16())
	r.bad = r.bad || p > highestPeak
	return p
}

func (r *reader) weight() float32 {
	v := math.Float32frombits(binary.LittleEndian.Uint32(r.rest))
	r.rest = r.rest[4:]
	r.number(float64(v))
	return v
}

// number checks a value that must be finite and not negative.
func (r *reader) number(v float64) float64 {
	r.bad = r.bad || !(v >= 0 && v <= math.MaxFloat64)
	return v
}
