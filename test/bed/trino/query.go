package trino

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Query runs a query at the coordinator by Trino's client protocol, and returns its rows. The error of a query is an
// error.
func Query(ctx context.Context, coordinator, sql string) (rows [][]any, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, coordinator+"/v1/statement", strings.NewReader(sql))
	for {
		if err != nil {
			return nil, err
		}
		r.Header.Set("X-Trino-User", "analyst")
		var page struct {
			Next  string `json:"nextUri"`
			Data  [][]any
			Error *struct{ ErrorName, Message string }
		}
		if err := ask(r, &page); err != nil {
			return nil, err
		}
		if page.Error != nil {
			return nil, fmt.Errorf("%s: %s: %s", sql, page.Error.ErrorName, page.Error.Message)
		}
		if rows = append(rows, page.Data...); page.Next == "" {
			return rows, nil
		}
		r, err = http.NewRequestWithContext(ctx, http.MethodGet, page.Next, nil)
	}
}

// ask sends a request until the server is not too busy, as the protocol says.
func ask(r *http.Request, into any) error {
	for {
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		if response.StatusCode == http.StatusServiceUnavailable && r.Method == http.MethodGet {
			response.Body.Close()
			time.Sleep(100 * time.Millisecond)
			continue
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s: %s", r.Method, r.URL, response.Status)
		}
		return json.NewDecoder(response.Body).Decode(into)
	}
}
