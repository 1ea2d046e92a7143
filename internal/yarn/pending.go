package yarn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Bounds of what queues say that they wait for.
const (
	maxQueues  = 10_000  // below the root
	maxQueue   = 8 << 20 // bytes of one of them, with its own queues and its users
	maxLevels  = 100     // of queues within queues
	maxPending = 1 << 40 // of one queue, in MiB and in vcores, so that sums stay in range
)

// Pending returns what applications asked for and have not got, of nodes with some labels; "" is the default partition.
// It counts too what the limits of queues and users refuse them. The queues below the root are read one after another,
// because an answer has about 8 kB for each queue. A scheduler without such queues is an error.
func (c *RM) Pending(ctx context.Context, labels ...string) (Resource, error) {
	below := listing{
		path: []string{"scheduler", "schedulerInfo", "queues", "queue"}, most: maxQueues, element: maxQueue,
	}
	var w waiting
	queues := 0
	err := c.list(ctx, "/scheduler", nil, below, func() { w, queues = waiting{labels: labels}, 0 },
		func(decode func(any) error) error {
			var queue json.RawMessage
			if err := decode(&queue); err != nil {
				return err
			}
			queues++
			w.d = json.NewDecoder(bytes.NewReader(queue))
			return w.read(0)
		})
	if err == nil && queues == 0 {
		err = errors.New("the ResourceManager shows no queues of a CapacityScheduler, which alone says what waits for a " +
			"label")
	}
	if err != nil {
		return Resource{}, err
	}
	return w.sum, nil
}

// waiting adds up what queues wait for.
type waiting struct {
	labels []string
	sum    Resource
	d      *json.Decoder
}

// read adds the queue that comes next. Only queues without queues have applications, and those above show the sum. It
// reads token by token, because decoding a queue within its queue would read its text once for each level, and the text
// can be of anybody.
func (w *waiting) read(level int) error {
	if level > maxLevels {
		return fmt.Errorf("the answer has queues at more than %d levels", maxLevels)
	}
	var own optional[struct {
		Partitions list[struct {
			Label   string       `json:"partitionName"`
			Pending resourceJSON `json:"pending"`
		}] `json:"resourceUsagesByPartition"`
	}]
	parent := false
	err := w.object(func(name string) error {
		switch name {
		case "resources":
			return w.d.Decode(&own)
		case "queues":
			return w.object(func(name string) error {
				if name != "queue" {
					return w.skip()
				}
				return w.each(func() error {
					parent = true
					return w.read(level + 1)
				})
			})
		}
		return w.skip()
	})
	if err != nil || parent {
		return err
	}
	for _, p := range own.v.Partitions {
		if slices.Contains(w.labels, p.Label) {
			one := p.Pending.resource()
			w.sum.MemoryMiB += min(max(one.MemoryMiB, 0), maxPending)
			w.sum.VCores += min(max(one.VCores, 0), maxPending)
		}
	}
	return nil
}

// object calls each with the names of the object that comes next. each reads the value. Anything else is skipped.
func (w *waiting) object(each func(name string) error) error {
	start, err := w.d.Token()
	if err != nil || start != json.Delim('{') {
		return errors.Join(err, w.rest(start))
	}
	for w.d.More() {
		name, err := w.d.Token()
		if err == nil {
			err = each(fmt.Sprint(name))
		}
		if err != nil {
			return err
		}
	}
	_, err = w.d.Token()
	return err
}

// each calls read for the elements of the array that comes next.
func (w *waiting) each(read func() error) error {
	start, err := w.d.Token()
	if err != nil || start != json.Delim('[') {
		return errors.Join(err, w.rest(start))
	}
	for w.d.More() {
		if err := read(); err != nil {
			return err
		}
	}
	_, err = w.d.Token()
	return err
}

// rest refuses an object or an array where another value was expected; null and "" stand for an empty one.
func (w *waiting) rest(start json.Token) error {
	if _, is := start.(json.Delim); is {
		return errors.New("the answer has queues in another form")
	}
	return nil
}

func (w *waiting) skip() error {
	var value json.RawMessage
	return w.d.Decode(&value)
}
