package service

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

var (
	errNoIP      = errors.New("the pod has no IP address")
	errLarge     = fmt.Errorf("the answer has more than %d bytes", maxAnswerBytes)
	errEncoded   = errors.New("the answer is compressed, which was not asked for")
	errNoMetric  = errors.New("the metric is not in the answer")
	errNegative  = errors.New("the figure is negative")
	errNoResult  = fmt.Errorf("the query has no result of the last %s", maxSampleAge)
	errResults   = errors.New("the query has several results; aggregate them")
	errNoNumber  = errors.New("the result of the query is no finite number: it has no data, or no request in its range")
	errScalar    = errors.New("the result of the query is a scalar, of unknown age; write a query without scalar()")
	errNotVector = errors.New("the result of the query is no instant vector")
	errNoTime    = errors.New("the answer has no time")
)

// millionths returns a figure in millionths. No number is 0: nothing was counted, so that nothing was slow. The summary
// of a pod has no number while there is no request.
func millionths(v float64) (int64, error) {
	switch {
	case math.IsNaN(v):
		return 0, nil
	case v < 0:
		return 0, errNegative
	case v*1e6 >= float64(model.MaxFigure):
		return model.MaxFigure, nil
	}
	return int64(math.Round(v * 1e6)), nil
}

// get reads an answer. The address in errors is where the answer came from.
func (f *Fetcher) get(ctx context.Context, address, accept string, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", address, err)
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "waterline-agent")
	response, err := f.client.Do(request)
	if err != nil {
		var where *url.Error // it repeats the address, which may be a long query
		if errors.As(err, &where) {
			err = where.Err
		}
		return fmt.Errorf("asking %s: %w", request.URL.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode != http.StatusOK:
		err = fmt.Errorf("status %d", response.StatusCode)
	case !slices.Contains([]string{"", "identity"}, response.Header.Get("Content-Encoding")):
		err = errEncoded
	default:
		body := &io.LimitedReader{R: response.Body, N: maxAnswerBytes + 1}
		if err = read(body); body.N == 0 {
			err = errLarge
		}
	}
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", request.URL.Host, err)
	}
	return nil
}

// series calls a function for each series of a pod's metric that has the labels of the source. The labels are valid
// only during the call.
func (f *Fetcher) series(ctx context.Context, t *model.ServiceTarget, name string, each func(*sample) error) error {
	if t.IP == "" {
		return errNoIP
	}
	address := "http://" + net.JoinHostPort(t.IP, strconv.FormatInt(t.Source.Port, 10)) + t.Source.Path
	return f.get(ctx, address, "text/plain;version=0.0.4", func(body io.Reader) error {
		return lines(bufio.NewReaderSize(body, maxLineBytes), func(line []byte) error {
			s, is := parse(line, name)
			if !is || !s.has(t.Source.Labels) {
				return nil
			}
			return each(&s)
		})
	})
}

// metric returns the highest value of a pod's metric.
func (f *Fetcher) metric(ctx context.Context, t *model.ServiceTarget) (float64, error) {
	highest, found := math.NaN(), false
	err := f.series(ctx, t, t.Source.Metric, func(s *sample) error {
		if found = true; math.IsNaN(highest) || s.value > highest {
			highest = s.value
		}
		return nil
	})
	if err == nil && !found {
		err = errNoMetric
	}
	return highest, err
}

// buckets returns the buckets of a pod's histogram, added up over its series.
func (f *Fetcher) buckets(ctx context.Context, t *model.ServiceTarget) ([]bucket, error) {
	var all []bucket
	err := f.series(ctx, t, t.Source.Metric+"_bucket", func(s *sample) error {
		var err error
		all, err = addBucket(all, s)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, errNoMetric
	}
	return all, checkBuckets(all)
}

// answer is Prometheus' answer to a query.
type answer struct {
	Status string
	Error  string
	Data   struct {
		ResultType string
		Result     json.RawMessage
	}
}

// query returns the result of a query, and the age of its sample, both by the server's clock. A result that is no
// finite number says nothing: Prometheus computes NaN from no data, as from no request.
//
// Prometheus answers with samples of up to five minutes ago (--query.lookback-delta) and the time of the evaluation. So
// the time of the sample is asked for: timestamp() returns it for a selector, and the time of the evaluation for
// anything that is computed. For that, lookback_delta leaves out older samples (Prometheus 2.44; older servers ignore
// it), except those in a range, such as [5m].
func (f *Fetcher) query(ctx context.Context, t *model.ServiceTarget) (value float64, age time.Duration, err error) {
	server, err := url.Parse(t.Source.URL)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the URL of Prometheus: %w", err)
	}
	server = server.JoinPath("api/v1/query")
	query := strings.NewReplacer("$node", f.node, "$namespace", t.Namespace, "$pod", t.Name).Replace(t.Source.Query)
	ask := url.Values{"query": {query}, "timeout": {f.limit.String()}, "lookback_delta": {maxSampleAge.String()}}
	result, err := f.ask(ctx, server, ask)
	switch {
	case err != nil:
		return 0, 0, err
	case math.IsNaN(result.value) || math.IsInf(result.value, 0):
		return 0, 0, errNoNumber
	}
	ask.Set("query", "timestamp(\n"+query+"\n)") // a comment may end the query
	ask.Set("time", strconv.FormatFloat(result.at, 'f', 3, 64))
	sampled, err := f.ask(ctx, server, ask)
	if err != nil {
		return 0, 0, fmt.Errorf("the time of the sample: %w", err)
	}
	age, err = since(sampled.value, result.at)
	return result.value, age, err
}

// since returns the time from one Unix time to a later one, in seconds.
func since(earlier, later float64) (time.Duration, error) {
	const most = 1e6 // beyond it any sample is too old
	seconds := later - earlier
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
		return 0, errNoTime
	}
	return time.Duration(min(max(seconds, 0), most) * float64(time.Second)), nil
}

// ask returns the one value of the answer to a query.
func (f *Fetcher) ask(ctx context.Context, server *url.URL, query url.Values) (p point, err error) {
	address := *server
	address.RawQuery = query.Encode()
	return p, f.get(ctx, address.String(), "application/json", func(body io.Reader) error {
		var a answer
		if err := json.NewDecoder(body).Decode(&a); err != nil {
			return err
		}
		p, err = a.point()
		return err
	})
}

// point is a value at a time.
type point struct {
	at    float64 // of the evaluation, in Unix seconds
	value float64
}

// point returns the one value of an answer.
func (a *answer) point() (point, error) {
	if a.Status != "success" {
		return point{}, fmt.Errorf("the server says %.20q: %.100s", a.Status, a.Error)
	}
	var pair [2]any
	switch a.Data.ResultType {
	case "scalar":
		return point{}, errScalar
	case "vector":
		var vector []struct{ Value [2]any }
		if err := json.Unmarshal(a.Data.Result, &vector); err != nil {
			return point{}, err
		}
		switch len(vector) {
		case 0:
			return point{}, errNoResult
		case 1:
			pair = vector[0].Value
		default:
			return point{}, errResults
		}
	default:
		return point{}, errNotVector
	}
	at, isTime := pair[0].(float64)
	text, _ := pair[1].(string)
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return point{}, fmt.Errorf("the value %.40q is no number", text)
	}
	if !isTime {
		return point{}, errNoTime
	}
	return point{at, value}, nil
}
