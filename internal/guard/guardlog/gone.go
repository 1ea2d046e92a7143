package guardlog

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// Gone is what stays known of a worker's pod that is gone. The manager keeps it in ConfigMaps of the pool.
type Gone struct {
	Worker string    `json:"worker"`
	Pod    string    `json:"pod"` // its UID
	Node   string    `json:"node,omitzero"`
	At     time.Time `json:"at"`             // when the manager saw that it was gone
	Phase  string    `json:"phase,omitzero"` // the worker's state before that, and the reason that it began for
	Reason string    `json:"reason,omitzero"`
	// Containers are those that left it, by the message of its guard, the last one first.
	Containers []Record `json:"containers"`
}

// What is kept of the pods of a pool that are gone is in so many ConfigMaps at most, each with so many pods and bytes.
const (
	goneParts = 16
	gonePods  = 128
	goneBytes = 256 << 10
)

// GonePart returns the name of the ConfigMap with the pods of a worker that are gone.
func GonePart(pool, worker string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(worker)) // never fails
	return fmt.Sprintf("%s-gone-%d", pool, sum.Sum32()%goneParts)
}

// AddGone returns the content of such a ConfigMap after more pods are gone: the pods that went last, the last one
// first. A content that cannot be read counts as none.
func AddGone(content string, more []Gone) (string, error) {
	var all []json.RawMessage
	size, seen := len("[]"), map[string]bool{}
	last := slices.Clone(more)
	slices.Reverse(last)
	for _, g := range append(last, ReadGone(content)...) {
		if seen[g.Pod] || len(all) == gonePods {
			continue
		}
		text, err := json.Marshal(g)
		if err != nil {
			return "", fmt.Errorf("encoding pod %s of worker %s: %w", g.Pod, g.Worker, err)
		}
		if size += len(text) + len(","); size <= goneBytes {
			seen[g.Pod], all = true, append(all, text)
		}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// ReadGone returns the pods in the content of such a ConfigMap, with their containers briefly. A content that cannot be
// read is none.
func ReadGone(content string) []Gone {
	var all []Gone
	if json.Unmarshal([]byte(content), &all) != nil {
		return nil
	}
	for i := range all {
		g := &all[i]
		of := g.Containers
		g.Containers = nil
		for j := range of {
			if b, ok := of[j].Brief(); ok {
				g.Containers = append(g.Containers, b)
			}
		}
	}
	return all
}
