package trino

import (
	"encoding/json"
	"fmt"
)

// decode reads one page of a query's answer. The error of a query is an error.
func decode(answer []byte) (page, error) {
	var p page
	if err := json.Unmarshal(answer, &p); err != nil {
		return p, fmt.Errorf("reading the answer of a query: %w", err)
	}
	if p.Error != nil {
		return p, fmt.Errorf("the query failed: %s: %s", p.Error.Name, p.Error.Message)
	}
	return p, nil
}
