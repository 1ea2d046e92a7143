package yarn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// Bounds of a list in a server's answer. The author of a pool's spec chooses its servers and may be a tenant. A list of
// tiny elements takes 70 times its size once it is decoded.
const (
	maxElement    = 1 << 20 // bytes of one element
	maxNodes      = 50_000
	maxLabels     = 1_000
	maxContainers = 10_000 // of one NodeManager
	maxText       = 4 << 10
	chunk         = 32 << 10 // of one read
)

// listing says where a list is in an answer, and how much of it is read.
type listing struct {
	path    []string // of the objects around the list, and its own name
	most    int      // elements
	element int64    // bytes of one of them; 0: maxElement
	without string   // arrays of this name count as empty; "": none
}

// meter reads an answer within bounds.
type meter struct {
	from          io.Reader
	left, element int64 // bytes that may follow: of all, and of the element or word that is read now
	most, unit    int64 // that all may have, and an element
}

// Read implements [io.Reader].
func (m *meter) Read(p []byte) (int, error) {
	if m.element <= 0 {
		return 0, fmt.Errorf("one element of the answer has more than %d bytes", m.unit)
	}
	p = p[:min(len(p), chunk)]
	if m.left < int64(len(p)) {
		p = p[:m.left+1] // one more shows whether there is more
	}
	n, err := m.from.Read(p)
	m.left, m.element = m.left-int64(n), m.element-int64(n)
	if m.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", m.most)
	}
	return n, err
}

// next begins another element or word.
func (m *meter) next() { m.element = m.unit + chunk }

// list sends a request to one server and calls each with the elements of a list in its answer, in their order, without
// keeping the others. each decodes the element.
func (w *web) list(
	ctx context.Context, base string, r request, l listing, each func(decode func(into any) error) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	response, a, err := w.open(ctx, base, r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || kind != jsonType || response.Header.Get("Refresh") != "" {
		if err := w.read(response, &a); err != nil {
			return err
		}
		return a.json(&struct{}{}) // it says why it is none
	}
	from := io.Reader(response.Body)
	if l.without != "" {
		from = newSieve(from, l.without)
	}
	m := &meter{from: from, left: w.most, most: w.most, unit: cmp.Or(l.element, maxElement)}
	s := stream{meter: m, d: json.NewDecoder(m), most: l.most, each: each}
	if err := s.find(l.path); err != nil {
		return fmt.Errorf("%s %s: %w", a.method, a.target, err)
	}
	return nil
}

// stream reads one list. It accepts the forms of lists that [list] and [optional] accept.
type stream struct {
	meter *meter
	d     *json.Decoder
	most  int
	seen  int
	each  func(decode func(into any) error) error
}

func (s *stream) token() (json.Token, error) {
	s.meter.next()
	t, err := s.d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return t, err
}

// find reads a value: the list if the path is empty, otherwise an object on the way to it.
func (s *stream) find(path []string) error {
	t, err := s.token()
	switch {
	case err != nil:
		return err
	case t == nil || t == "": // an empty list, or an empty object
		return nil
	case t == json.Delim('['):
		return s.elements(len(path) == 0)
	case t != json.Delim('{'):
		return errors.New("the answer has something else in place of a list")
	case len(path) == 0:
		return s.only()
	}
	for s.d.More() {
		name, err := s.token()
		if err == nil && name == path[0] {
			err = s.find(path[1:])
		} else if err == nil {
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	_, err = s.token()
	return err
}

// elements reads the rest of an array. One in place of an object is empty.
func (s *stream) elements(ours bool) error {
	for s.d.More() {
		if !ours {
			return errors.New("the answer has a list in place of an object")
		}
		s.meter.next()
		if err := s.one(s.d.Decode); err != nil {
			return err
		}
	}
	_, err := s.token()
	return err
}

func (s *stream) one(decode func(into any) error) error {
	if s.seen++; s.seen > s.most {
		return fmt.Errorf("the answer lists more than %d", s.most)
	}
	return s.each(decode)
}

// only reads the rest of an object that stands for a list of one.
func (s *stream) only() error {
	object := map[string]json.RawMessage{}
	s.meter.next()
	for s.d.More() {
		name, err := s.d.Token()
		var value json.RawMessage
		if err == nil {
			err = s.d.Decode(&value)
		}
		if err != nil {
			return err
		}
		object[fmt.Sprint(name)] = value
	}
	if _, err := s.token(); err != nil {
		return err
	}
	if len(object) == 0 {
		return nil // an empty list of some releases
	}
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return s.one(json.NewDecoder(bytes.NewReader(content)).Decode)
}

// skip reads a value and forgets it.
func (s *stream) skip() error {
	s.meter.next()
	var value json.RawMessage
	return s.d.Decode(&value)
}

// cut returns the beginning of a text of a server.
func cut(text string) string { return text[:min(len(text), maxText)] }
