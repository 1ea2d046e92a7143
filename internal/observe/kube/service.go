package kube

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// maxServices is the number of entries of protect.services, at most.
const maxServices = 16

// The grammars of values, as in the validation rules of the API.
var (
	figure     = regexp.MustCompile(`^(0|[1-9][0-9]{0,11})(?:\.([0-9]{1,6}))?$`)
	quantile   = regexp.MustCompile(`^0\.[0-9]{1,6}$`)
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	metricPath = regexp.MustCompile(`^/[!$-~]*$`)
	serverURL  = regexp.MustCompile(`^https?://[^/?#@ ]+(/[^?#@ ]*)?$`)
)

func (c *checker) services(field string, specs []v1alpha1.ServiceSpec) []model.ServiceRule {
	if len(specs) > maxServices {
		c.bad(field, fmt.Sprintf("a list of %d", len(specs)), fmt.Sprintf("write at most %d entries", maxServices))
	}
	var rules []model.ServiceRule
	for i, spec := range specs {
		field := fmt.Sprintf("%s[%d]", field, i)
		rule := model.ServiceRule{
			Selector:   c.required(field+".selector", spec.Selector),
			Namespaces: c.selector(field+".namespaceSelector", spec.NamespaceSelector),
			Max:        c.millionths(figure, field+".max", spec.Max, `write a decimal above 0, such as "0.020"`),
		}
		switch {
		case spec.Metric != nil && spec.Prometheus != nil:
			c.bad(field, "metric and prometheus", "write only one of them")
		case spec.Metric != nil:
			rule.Source = c.metric(field+".metric", spec.Metric)
		case spec.Prometheus != nil:
			rule.Source = c.query(field+".prometheus", spec.Prometheus)
		default:
			c.bad(field, "an entry without a figure", "write metric or prometheus")
		}
		rules = append(rules, rule)
	}
	return rules
}

// metric reads a metric that pods serve.
func (c *checker) metric(field string, m *v1alpha1.ServiceMetricSpec) model.ServiceSource {
	source := model.ServiceSource{
		Port: c.within(field+".port", int64(m.Port), 1, 65535, "a port"),
		Path: c.text(metricPath, field+".path", m.Path, 1024, "write a path that begins with /, such as /metrics"),
		Metric: c.text(metricName, field+".name", m.Name, 256,
			"write the name of a metric, such as http_request_duration_seconds"),
	}
	if m.Path == "" {
		source.Path = "/metrics"
	}
	if m.Name == "" {
		c.bad(field+".name", `""`, "write the name of a metric, such as http_request_duration_seconds")
	}
	if _, err := url.ParseRequestURI(source.Path); err != nil {
		c.bad(field+".path", fmt.Sprintf("%.64q", source.Path), "write a path that begins with /, such as /metrics")
	}
	if len(m.Labels) > 16 {
		c.bad(field+".labels", fmt.Sprintf("a map of %d", len(m.Labels)), "write at most 16 labels")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		value := string(m.Labels[name])
		c.text(labelName, field+".labels", name, 128, "write the name of a label of a metric, such as handler")
		if name == "" || len(value) > 256 {
			c.bad(field+".labels", fmt.Sprintf("%.64q: %.64q", name, value), "write a name, and a value of at most 256 bytes")
		}
		source.Labels = append(source.Labels, model.MetricLabel{Name: name, Value: value})
	}
	if m.Quantile != "" {
		source.Quantile = c.millionths(quantile, field+".quantile", m.Quantile,
			`write a decimal between 0 and 1, such as "0.99"`)
	}
	return source
}

// query reads a query of a Prometheus server.
func (c *checker) query(field string, q *v1alpha1.ServiceQuerySpec) model.ServiceSource {
	const fix = "write an http or https URL without a query or credentials, such as http://prometheus.monitoring:9090"
	source := model.ServiceSource{URL: c.text(serverURL, field+".url", q.URL, 1024, fix), Query: q.Query}
	if u, err := url.Parse(q.URL); err != nil || u.Hostname() == "" {
		c.bad(field+".url", fmt.Sprintf("%.64q", q.URL), fix)
	}
	if strings.TrimSpace(q.Query) == "" || len(q.Query) > 4096 {
		c.bad(field+".query", fmt.Sprintf("%.64q", q.Query), "write a PromQL query of at most 4096 bytes with one value")
	}
	return source
}

// text returns a text of a grammar; an empty one is no error.
func (c *checker) text(grammar *regexp.Regexp, field, text string, most int, fix string) string {
	if text != "" && (len(text) > most || !grammar.MatchString(text)) {
		c.bad(field, fmt.Sprintf("%.64q", text), fix)
	}
	return text
}

// millionths reads a decimal above 0 that a grammar bounds.
func (c *checker) millionths(grammar *regexp.Regexp, field, text, fix string) int64 {
	whole, decimals, _ := strings.Cut(text, ".")
	n := int64(0)
	if grammar.MatchString(text) { // at most 18 digits, so it is a number
		n, _ = strconv.ParseInt(whole+(decimals + "000000")[:6], 10, 64)
	}
	if n == 0 {
		c.bad(field, fmt.Sprintf("%.64q", text), fix)
	}
	return n
}
