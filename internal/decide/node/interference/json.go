package interference

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// trackRow is how a [Track] is written: a row of numbers after the UID, because the journal holds that of every pod.
type trackRow struct {
	UID    string
	Values [13]int64
}

// MarshalJSON writes the track as a short row.
func (t Track) MarshalJSON() ([]byte, error) {
	return json.Marshal(trackRow{t.UID, [...]int64{
		int64(t.Slot), int64(t.Age), int64(t.Rest),
		int64(t.Used.At), int64(t.Used.Sum), int64(t.Used.N), int64(t.Used.Full),
		int64(t.Wait.At), int64(t.Wait.Sum), int64(t.Wait.N), int64(t.Wait.Full),
		int64(t.Lacked.At), int64(t.Lacked.Wait),
	}})
}

// UnmarshalJSON reads what [Track.MarshalJSON] wrote.
func (t *Track) UnmarshalJSON(text []byte) error {
	var r trackRow
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("reading a track: %w", err)
	}
	v := &r.Values
	*t = Track{
		UID: r.UID, Slot: uint16(v[0]), Age: uint8(v[1]), Rest: uint8(v[2]),
		Used:   Series{At: time.Duration(v[3]), Sum: int32(v[4]), N: int16(v[5]), Full: uint8(v[6])},
		Wait:   Series{At: time.Duration(v[7]), Sum: int32(v[8]), N: int16(v[9]), Full: uint8(v[10])},
		Lacked: model.Lacked{At: time.Duration(v[11]), Wait: time.Duration(v[12])},
	}
	return nil
}
