package service

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// target returns the figure of a test server's metric.
func target(t *testing.T, server *httptest.Server, uid string, source model.ServiceSource) model.ServiceTarget {
	t.Helper()
	where, err := netip.ParseAddrPort(strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	source.Port, source.Path = int64(where.Port()), "/metrics"
	if source.Metric == "" {
		source.Metric = "seconds"
	}
	return model.ServiceTarget{
		UID: uid, Namespace: "shop", Name: "web-1", IP: where.Addr().String(), Source: source, Max: 20_000,
	}
}

// serve returns a server that answers all requests alike.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// fetch fetches one target once. The limit is so long that a slow machine does not reach it.
func fetch(target model.ServiceTarget) model.ServiceFigure { return fetchWithin(5*time.Minute, target) }

func fetchWithin(limit time.Duration, target model.ServiceTarget) model.ServiceFigure {
	f := New("node-1")
	f.limit = limit
	e := &entry{target: target}
	f.fetch(context.Background(), e)
	return e.figure
}

// TestMetric checks which value of an answer counts.
func TestMetric(t *testing.T) {
	const two = "seconds{handler=\"a\"} 5\nseconds{code=\"1\", handler=\"a\\\"b}\",} 2\n"
	long := "seconds{a=\"" + strings.Repeat("x", 2*maxLineBytes) + "\"} 9\n"
	label := []model.MetricLabel{{Name: "handler", Value: `a"b}`}, {Name: "zone", Value: ""}}
	for name, c := range map[string]struct {
		answer string
		labels []model.MetricLabel
		want   int64
		failed string
	}{
		"a gauge":               {"# HELP seconds x\nseconds 0.0205\n", nil, 20_500, ""},
		"no end of line":        {"seconds 1", nil, 1_000_000, ""},
		"with a time":           {"seconds\t3e-3 1700000000000\r\n", nil, 3_000, ""},
		"with an exemplar":      {"seconds 0.5 # {trace=\"1\"} 0.6\n", nil, 500_000, ""},
		"the highest":           {"seconds{a=\"1\"} 1\nseconds{a=\"2\"} 3\nseconds{a=\"3\"} NaN\n", nil, 3_000_000, ""},
		"by labels":             {two, label, 2_000_000, ""},
		"another label":         {"seconds{handler=\"a\\\"b}\",zone=\"1\"} 2\n", label, 0, errNoMetric.Error()},
		"another name":          {"seconds_sum 1\nmilliseconds 2\n", nil, 0, errNoMetric.Error()},
		"nothing":               {"", nil, 0, errNoMetric.Error()},
		"no number":             {"seconds NaN\n", nil, 0, ""},
		"infinite":              {"seconds +Inf\n", nil, model.MaxFigure, ""},
		"huge":                  {"seconds 1e999\n", nil, model.MaxFigure, ""},
		"negative":              {"seconds -1\n", nil, 0, errNegative.Error()},
		"infinitely negative":   {"seconds -Inf\n", nil, 0, errNegative.Error()},
		"no value":              {"seconds\nseconds \nseconds{} \nseconds{a=\"\nseconds one\n", nil, 0, errNoMetric.Error()},
		"a long number":         {"seconds 0." + strings.Repeat("0", 100) + "\n", nil, 0, errNoMetric.Error()},
		"a long line":           {long + "seconds 1\n", nil, 1_000_000, ""},
		"HTML":                  {"<html><body>seconds 1</body></html>", nil, 0, errNoMetric.Error()},
		"bytes that are not so": {"\x00\xff\xfe{\nseconds{\xff=\"\"} 1\n", nil, 1_000_000, ""},
	} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) })
		got := fetch(target(t, server, "web", model.ServiceSource{Labels: c.labels}))
		if got.Value != c.want || !strings.Contains(got.Failed, c.failed) || (got.Failed == "") != (c.failed == "") ||
			(got.At == 0) != (got.Failed != "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestHostile checks that what a pod answers costs little time and memory, and leads nowhere else.
func TestHostile(t *testing.T) {
	var elsewhere atomic.Int64
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		_, _ = io.WriteString(w, "seconds 1\n")
	})
	endless := func(w http.ResponseWriter, r *http.Request, line string) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat(line, 1000)); err != nil {
				return
			}
		}
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 64<<20))
	_ = z.Close()
	t.Setenv("HTTP_PROXY", other.URL)
	t.Setenv("http_proxy", other.URL)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		failed  string
	}{
		"it hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline"},
		"it hangs within the answer": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "seconds 1\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "deadline"},
		"it drips": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "#")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(50 * time.Millisecond)
			}
		}, "deadline"},
		"an endless body": {func(w http.ResponseWriter, r *http.Request) {
			endless(w, r, "seconds 1\n")
		}, errLarge.Error()},
		"an endless line": {func(w http.ResponseWriter, r *http.Request) { endless(w, r, "seconds") }, errLarge.Error()},
		"a gzip bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}, errEncoded.Error()},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusFound)
		}, "status 302"},
		"endless headers": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range 2000 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 100))
			}
		}, "header"},
		"an error":      {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "seconds 1", 500) }, "status 500"},
		"no content":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "status 204"},
		"no HTTP":       {hijacked("seconds 1\n"), "malformed"},
		"a broken body": {hijacked("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nseconds 1\n"), "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			limit := 5 * time.Minute
			if c.failed == "deadline" {
				limit = 50 * time.Millisecond
			}
			got := fetchWithin(limit, target(t, serve(t, c.handler), "web", model.ServiceSource{}))
			if got.At != 0 || !strings.Contains(got.Failed, c.failed) || len(got.Failed) > maxErrorBytes {
				t.Errorf("%+v", got)
			}
		})
	}
	if elsewhere.Load() > 0 {
		t.Error("the agent was led to another server")
	}
	for name, target := range map[string]model.ServiceTarget{
		"no address":     {Source: model.ServiceSource{Port: 1, Path: "/", Metric: "m"}},
		"nobody listens": {IP: "127.0.0.1", Source: model.ServiceSource{Port: 1, Path: "/", Metric: "m"}},
	} {
		if got := fetch(target); got.Failed == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// hijacked writes text to the connection.
func hijacked(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var c net.Conn
		if c, _, _ = http.NewResponseController(w).Hijack(); c != nil {
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}
}

// TestQuery checks queries of a Prometheus server.
func TestQuery(t *testing.T) {
	vector := func(values ...string) string {
		var all []string
		for _, v := range values {
			all = append(all, `{"metric":{"pod":"web-1"},"value":[1700000000.5,"`+v+`"]}`)
		}
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(all, ",") + `]}}`
	}
	scalar := func(v string) string {
		return `{"status":"success","data":{"resultType":"scalar","result":[1700000000,"` + v + `"]}}`
	}
	for name, c := range map[string]struct {
		answer string
		want   int64
		failed string
	}{
		"a vector":            {vector("0.0205"), 20_500, ""},
		"a scalar":            {scalar("2"), 0, errScalar.Error()},
		"scalar of nothing":   {scalar("NaN"), 0, errScalar.Error()},
		"no number":           {vector("NaN"), 0, errNoNumber.Error()},
		"infinite":            {vector("+Inf"), 0, errNoNumber.Error()},
		"infinitely negative": {vector("-Inf"), 0, errNoNumber.Error()},
		"huge":                {vector("1e300"), model.MaxFigure, ""},
		"negative":            {vector("-2"), 0, errNegative.Error()},
		"nothing":             {vector(), 0, errNoResult.Error()},
		"several":             {vector("1", "2"), 0, errResults.Error()},
		"a matrix":            {`{"status":"success","data":{"resultType":"matrix","result":[]}}`, 0, errNotVector.Error()},
		"a bad value":         {vector("one"), 0, `the value "one" is no number`},
		"a strange result": {
			`{"status":"success","data":{"resultType":"vector","result":[{"value":[1]}]}}`, 0, "no number",
		},
		"an error":      {`{"status":"error","error":"parse error"}`, 0, "parse error"},
		"no JSON":       {"<html>", 0, "invalid character"},
		"a long answer": {`{"status":"` + strings.Repeat("x", maxAnswerBytes) + `"}`, 0, errLarge.Error()},
	} {
		var asked []url.Values
		var path string
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked, path = append(asked, r.URL.Query()), r.URL.Path
			if len(asked) > 1 {
				c.answer = vector("1700000000.5")
			}
			_, _ = io.WriteString(w, c.answer)
		})
		got := fetch(queried(server, `p99{node="$node",ns="$namespace",pod="$pod"}`))
		if got.Value != c.want || !strings.Contains(got.Failed, c.failed) || (got.Failed == "") != (c.failed == "") ||
			(got.At == 0) != (got.Failed != "") || len(got.Failed) > maxErrorBytes {
			t.Errorf("%s: %+v", name, got)
		}
		if path != "/prom/api/v1/query" || asked[0].Get("query") != `p99{node="node-1",ns="shop",pod="web-1"}` {
			t.Errorf("%s: asked %s %s", name, path, asked)
		}
	}
}

// queried returns the figure that a query of a server has.
func queried(server *httptest.Server, query string) model.ServiceTarget {
	return model.ServiceTarget{
		UID: "web", Namespace: "shop", Name: "web-1", Source: model.ServiceSource{URL: server.URL + "/prom/", Query: query},
	}
}

// TestQueryAge checks that a value of Prometheus is as old as its sample, not as the evaluation of the query, and what
// the server is asked for that.
func TestQueryAge(t *testing.T) {
	const now = time.Hour
	for name, c := range map[string]struct {
		query   string
		answers [2]string // the value and the time of its sample, each with the time of the evaluation
		want    time.Duration
		failed  string
	}{
		"just scraped":   {"p99", [2]string{`[1700000000.5,"3"]`, `[1700000000.5,"1700000000.25"]`}, now - time.Second/4, ""},
		"an old sample":  {"p99", [2]string{`[1700000000,"3"]`, `[1700000000,"1699999710"]`}, now - 290*time.Second, ""},
		"before boot":    {"p99", [2]string{`[1700000000,"3"]`, `[1700000000,"1600000000"]`}, 0, ""},
		"in the future":  {"p99", [2]string{`[1700000000,"3"]`, `[1700000000,"1700000009"]`}, now, ""},
		"with a comment": {"p99 # of a minute", [2]string{`[1700000000,"3"]`, `[1700000000,"1700000000"]`}, now, ""},
		"no time":        {"p99", [2]string{`[1700000000,"3"]`, `[1700000000,"NaN"]`}, 0, errNoTime.Error()},
		"no finite time": {"p99", [2]string{`[1700000000,"3"]`, `[1700000000,"+Inf"]`}, 0, errNoTime.Error()},
		"no evaluation":  {"p99", [2]string{`[null,"3"]`, ""}, 0, errNoTime.Error()},
		"gone meanwhile": {"p99", [2]string{`[1700000000,"3"]`, ""}, 0, "the time of the sample: "},
	} {
		var asked []url.Values
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			result := ""
			if value := c.answers[len(asked)]; value != "" {
				result = `{"metric":{},"value":` + value + `}`
			}
			asked = append(asked, r.URL.Query())
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`+result+`]}}`)
		})
		f := New("node-1")
		f.limit, f.clock = 5*time.Minute, func() time.Duration { return now }
		e := &entry{target: queried(server, c.query)}
		f.fetch(context.Background(), e)
		if got := e.figure; got.At != c.want || !strings.Contains(got.Failed, c.failed) ||
			(got.Failed == "") != (c.failed == "") || got.Failed == "" && got.Value != 3_000_000 {
			t.Errorf("%s: %+v, want the time %s", name, got, c.want)
		}
		for i, q := range asked {
			if q.Get("lookback_delta") != "20s" {
				t.Errorf("%s: asked %v", name, q)
			}
			if i == 1 && (q.Get("query") != "timestamp(\n"+c.query+"\n)" || !strings.HasPrefix(q.Get("time"), "1700000000.")) {
				t.Errorf("%s: asked for the time by %v", name, q)
			}
		}
	}
}

// answers answers requests in the place of servers.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// TestRun checks that figures are fetched for as long as they are needed, and that a pod that hangs keeps no other one
// waiting. It runs in the time of a bubble.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		requests, hung := 0, 0
		f := New("node-1")
		f.clock = func() time.Duration { return time.Since(began) }
		f.client.Transport = answers(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Host == "10.0.0.1:80" {
				hung++
				mu.Unlock()
				defer mu.Lock()
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			requests++
			body := io.NopCloser(strings.NewReader(fmt.Sprintf("seconds %d\n", requests)))
			return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { f.Run(ctx); close(ended) }()
		at := func(ip, uid string) model.ServiceTarget {
			return model.ServiceTarget{UID: uid, IP: ip, Max: 20_000,
				Source: model.ServiceSource{Port: 80, Path: "/metrics", Metric: "seconds"}}
		}
		wanted := []model.ServiceTarget{at("10.0.0.1", "a"), at("10.0.0.2", "b")}
		f.Need(wanted)
		time.Sleep(timeout + everyPort + everyPort/2)
		synctest.Wait() // until no request of this moment changes the counts
		all := f.Append(nil)
		if len(all) != 2 || all[0].Failed == "" || all[0].At != 0 || all[1].Value != 3_000_000 || all[1].At == 0 ||
			requests != 3 || hung != 3 {
			t.Errorf("in the third second, after %d and %d requests: %+v", requests, hung, all)
		}
		f.Need(wanted[1:])
		if all := f.Append(nil); len(all) != 1 || all[0].UID != "b" || all[0].Value != 3_000_000 {
			t.Errorf("the figure of a target that stays is lost: %+v", all)
		}
		wanted[1].Max++
		f.Need(wanted[1:])
		if all := f.Append(nil); len(all) != 1 || all[0].At != 0 || all[0].Max != 20_001 {
			t.Errorf("the figure of another rule counts: %+v", all)
		}
		f.Need(nil)
		if all := f.Append(nil); len(all) != 0 {
			t.Errorf("no figure is wanted: %+v", all)
		}
		synctest.Wait() // a request may be under way
		before := requests
		time.Sleep(10 * everyPort)
		synctest.Wait()
		if requests != before {
			t.Errorf("%d requests for a figure that nobody wants", requests-before)
		}
		many := make([]model.ServiceTarget, 2*maxTargets)
		for i := range many {
			many[i] = at("10.0.0.2", fmt.Sprintf("p%02d", i))
		}
		if f.Need(many); len(f.Append(nil)) != maxTargets {
			t.Error("more than 16 figures are fetched")
		}
		synctest.Wait()
		if requests != before+maxTargets {
			t.Errorf("%d requests for %d figures", requests-before, maxTargets)
		}
		cancel()
		<-ended
	})
}
