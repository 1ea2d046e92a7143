package guardlog

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
)

// A guard's message is the termination message of its container: the last record of each container that left or was
// told to, the newest first, each on a line of JSON. The kubelet copies it into the pod's status when the guard ends.
// All containers of the pod run as the same user and can write to it, so it counts as the word of the worker and no
// more.

// MessageBytes is how much the kubelet keeps of a termination message. Of a pod with more than three containers it
// keeps less, from the beginning.
const MessageBytes = 4096

// Bounds of what a message may say of one container.
const (
	messageTries  = 8
	messageUser   = 64
	messageWhy    = 80
	messageReason = 40
)

// signals are those that a guard sends.
var signals = [...]string{"PWR", "TERM", "KILL"}

// Brief returns a record of who left or was told to, when, why, and what was tried, without what tells more. ok is
// false for a record of neither. Nothing but that is in the result, and each part of it is bounded, whoever wrote the
// record.
func (r *Record) Brief() (b Record, ok bool) {
	b = Record{
		At: second(r.At), Container: r.Container, User: Plain(r.User, messageUser), Master: r.Master, Left: r.Left,
		WithWorker: r.WithWorker, Exit: r.Exit,
	}
	tried := r.Tried
	if r.Left {
		b.Why = Plain(r.Why, messageWhy)
	} else if r.Processes > 0 || r.Asked {
		tried = append(slices.Clip(tried), Try{At: r.At, Signal: r.Signal, Reason: r.Reason})
	}
	for _, t := range tried {
		if slices.Contains(signals[:], t.Signal) {
			b.Tried = append(b.Tried, Try{At: second(t.At), Signal: t.Signal, Reason: Plain(t.Reason, messageReason)})
		}
	}
	b.Tried = slices.Delete(b.Tried, 0, max(len(b.Tried)-messageTries, 0))
	return b, IsContainer(r.Container) && (b.Left || len(b.Tried) > 0)
}

// second cuts a time to seconds in UTC, which takes 20 bytes.
func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// Plain returns the beginning of a text that a tenant may have written, on one line.
func Plain(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }), " ")
	runes := []rune(strings.TrimSpace(text))
	return string(runes[:min(len(runes), most)])
}

// WriteMessage writes the first records, each briefly, as many as the kubelet keeps.
func WriteMessage(all []Record) []byte {
	var out []byte
	for i := range all {
		b, ok := all[i].Brief()
		if !ok {
			continue
		}
		line, err := json.Marshal(&b)
		if err != nil {
			continue // a time beyond the year 9999
		}
		if len(out)+len(line)+1 > MessageBytes {
			break
		}
		out = append(append(out, line...), '\n')
	}
	return out
}

// ReadMessage returns the records of a message, briefly, one for each container. Lines that are none do not count, such
// as a last one that was cut off.
func ReadMessage(message []byte) []Record {
	var all []Record
	seen := map[string]bool{}
	for line := range bytes.Lines(message) {
		var r Record
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		if b, ok := r.Brief(); ok && !seen[b.Container] {
			seen[b.Container] = true
			all = append(all, b)
		}
	}
	return all
}

// Application returns the id of the application that a container belongs to; "" for an id that is none.
func Application(container string) string {
	parts := strings.Split(container, "_")
	if len(parts) > 1 && strings.HasPrefix(parts[1], "e") { // the epoch of a ResourceManager that was started again
		parts = append(parts[:1], parts[2:]...)
	}
	if len(parts) != 5 {
		return ""
	}
	return "application_" + parts[1] + "_" + parts[2]
}

// IsContainer reports whether a text is the id of a container: container_[eEPOCH_]CLUSTER_APPLICATION_ATTEMPT_NUMBER.
func IsContainer(id string) bool {
	rest, found := strings.CutPrefix(id, "container_")
	if !found || len(id) > 100 || Application(id) == "" {
		return false
	}
	return strings.Trim(strings.TrimPrefix(rest, "e"), "0123456789_") == ""
}
