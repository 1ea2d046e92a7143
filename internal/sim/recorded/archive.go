package recorded

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// An archive is gzip of JSON values: a head, its nodes, its pods.
const (
	kind    = "waterline recording"
	version = 1
)

type head struct {
	Kind        string
	Version     int
	From        string
	Begin       time.Time
	Days        int
	Nodes, Pods int
	Notes       []string
}

// Save writes the recording into a file that Open reads. It contains the names of namespaces and workloads.
func (r *Recording) Save(file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("saving a recording: %w", err)
	}
	packed := gzip.NewWriter(f)
	to := bufio.NewWriter(packed)
	out := json.NewEncoder(to)
	err = out.Encode(head{kind, version, r.From, r.Begin, r.Days, len(r.Nodes), len(r.Pods), r.Notes})
	for i := range r.Nodes {
		err = errors.Join(err, out.Encode(&r.Nodes[i]))
	}
	for i := range r.Pods {
		err = errors.Join(err, out.Encode(&r.Pods[i]))
	}
	if err := errors.Join(err, to.Flush(), packed.Close(), f.Close()); err != nil {
		return fmt.Errorf("saving a recording: %w", err)
	}
	return nil
}

// Open reads a recording that was saved.
func Open(file string) (*Recording, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening a recording: %w", err)
	}
	defer f.Close()
	r, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("recording %s cannot be used: %w. Save it anew with --save", file, err)
	}
	return r, nil
}

func decode(from io.Reader) (*Recording, error) {
	unpacked, err := gzip.NewReader(from)
	if err != nil {
		return nil, fmt.Errorf("it is no file that --save wrote: %w", err)
	}
	in := json.NewDecoder(unpacked)
	var h head
	if err := in.Decode(&h); err != nil || h.Kind != kind {
		return nil, fmt.Errorf("it is no file that --save wrote: %w", errors.Join(err, unpacked.Close()))
	}
	if h.Version != version {
		return nil, fmt.Errorf("its format is %d, and this version reads %d", h.Version, version)
	}
	r := &Recording{From: h.From, Begin: h.Begin, Days: h.Days, Notes: h.Notes}
	for i := range h.Nodes {
		var n Node
		if err := in.Decode(&n); err != nil {
			return nil, fmt.Errorf("node %d of %d: %w", i+1, h.Nodes, err)
		}
		r.Nodes = append(r.Nodes, n)
	}
	for i := range h.Pods {
		var p Pod
		if err := in.Decode(&p); err != nil {
			return nil, fmt.Errorf("pod %d of %d: %w", i+1, h.Pods, err)
		}
		r.Pods = append(r.Pods, p)
	}
	return r, r.check()
}
