package yarn

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

func TestSieve(t *testing.T) {
	for in, want := range map[string]string{
		`{"logs":["a","b"],"id":1}`:                `{"logs":[],"id":1}`,
		`{"logs" : [ ["]"], {"x":[1]} ] , "id":1}`: `{"logs" : [] , "id":1}`,
		`[{"logs":["a"]},{"logs":["b"]}]`:          `[{"logs":[]},{"logs":[]}]`,
		`{"logs":["\"]","\\"],"id":[1]}`:           `{"logs":[],"id":[1]}`,
		`{"logs":"a","id":["b"]}`:                  `{"logs":"a","id":["b"]}`,
		`{"logs":{"id":["b"]}}`:                    `{"logs":{"id":["b"]}}`,
		`{"id":"logs","ids":["b"]}`:                `{"id":"logs","ids":["b"]}`,
		`{"id":"\"logs\":[1]","ids":["logs",[1]]}`: `{"id":"\"logs\":[1]","ids":["logs",[1]]}`,
		`{"logs2":[1],"log":[2],"\logs":[3]}`:      `{"logs2":[1],"log":[2],"\logs":[3]}`,
		`{"logs":["cut`:                            `{"logs":[`,
		"":                                         "",
	} {
		for name, from := range map[string]io.Reader{
			"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in)),
		} {
			got, err := io.ReadAll(iotest.OneByteReader(newSieve(from, "logs")))
			if string(got) != want || err != nil {
				t.Errorf("%s, %s: got %s, %v; want %s", in, name, got, err, want)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(newSieve(iotest.ErrReader(broken), "logs")); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	endless := io.MultiReader(strings.NewReader(`{"logs":[`), zeros{})
	if _, err := io.ReadAll(newSieve(endless, "logs")); err == nil {
		t.Error("an answer without an end is no error")
	}
}

// zeros are an array that does not end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// TestManyLogFiles has a container's tenant fill the directory of its logs, which are in the NodeManager's list.
func TestManyLogFiles(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		name := strings.Repeat("x", 250)
		files := strings.Repeat(`"`+name+`",`, 20_000) + `"stdout"`
		_, _ = fmt.Fprintf(w, `{"containers":{"container":[{"id":"a","containerLogFiles":[%s]},{"id":"b"}]}}`, files)
	}))
	defer server.Close()
	nm, err := NewNM(HTTPOptions{MaxAnswer: maxNMAnswer})
	if err != nil {
		t.Fatal(err)
	}
	all, err := nm.Containers(t.Context(), server.URL)
	if err != nil || len(all) != 2 || all[0].ID != "a" || all[1].ID != "b" {
		t.Errorf("got %+v, %v", all, err)
	}
}
