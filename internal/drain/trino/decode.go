package trino

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// errorName is the form of the names of Trino's errors, such as PERMISSION_DENIED.
var errorName = regexp.MustCompile(`^[A-Z][A-Z_]{1,63}$`)

// decode reads one page of a query's answer. The error of a query is an error.
func decode(answer []byte) (page, error) {
	var p page
	if json.Unmarshal(answer, &p) != nil {
		return p, errors.New("the answer of a query is not that of Trino")
	}
	if p.Error != nil { // its message may be another server's
		name := p.Error.Name
		if !errorName.MatchString(name) {
			name = "without a name of Trino's errors"
		}
		return p, fmt.Errorf("the query failed: %s; the coordinator's log has more", name)
	}
	return p, nil
}
