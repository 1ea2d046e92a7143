package guard

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
)

// kept is how many records are kept.
const kept = 200

// view is the state of a guard.
type view struct {
	At          time.Time        `json:"at"`
	Settings    shed.Settings    `json:"settings"`
	Allowance   shed.Allowance   `json:"allowance"`
	Memory      shed.Memory      `json:"memory"`
	CPU         shed.CPU         `json:"cpu"`
	Listed      time.Time        `json:"listed,omitzero"`
	Scanned     time.Time        `json:"scanned,omitzero"`
	NodeManager int              `json:"nodeManager"` // pid
	Containers  []shed.Container `json:"containers"`
	Waits       string           `json:"waits,omitzero"`
	Errors      []string         `json:"errors,omitempty"`
}

// records keeps the last records and the state, for whoever asks.
type records struct {
	out io.Writer

	mu    sync.Mutex
	all   []guardlog.Record
	state view
}

// add writes a record and keeps it.
func (r *records) add(one guardlog.Record) error {
	r.mu.Lock()
	r.all = append(r.all, one)
	r.all = slices.Delete(r.all, 0, max(len(r.all)-kept, 0))
	r.mu.Unlock()
	line, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("encoding a record: %w", err)
	}
	_, err = r.out.Write(append(line, '\n'))
	return err
}

func (r *records) show(v view) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = v
}

// Handler serves the state at /state and the last 200 records at /records, as JSON.
func (g *Guard) Handler() http.Handler {
	mux := http.NewServeMux()
	serve := func(path string, read func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			g.records.mu.Lock()
			v := read()
			g.records.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v) // the client may have gone
		})
	}
	serve("/state", func() any { return g.records.state })
	serve("/records", func() any { return slices.Clone(g.records.all) })
	return mux
}
