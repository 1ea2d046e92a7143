package yarn

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// TestSettings checks that the settings are those of the active ResourceManager, in whatever format they come.
func TestSettings(t *testing.T) {
	_, one := serve(t, map[string][]string{"GET /info": {"info-standby"}})
	r, two := serve(t, map[string][]string{
		"GET /info": {"info"}, "GET /conf": {"conf", "conf-xml", "conf-forbidden", "info", "labels-none"},
	})
	c := client(t, one, two)
	settings, err := c.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"yarn.node-labels.enabled":                    "true",
		"yarn.scheduler.minimum-allocation-mb":        "128",
		"yarn.resourcemanager.nodes.exclude-path":     "/bed/conf/exclude.xml",
		"yarn.resourcemanager.webapp.address.rm2":     "rm2.bed:8088",
		"yarn.scheduler.capacity.resource-calculator": "",
	} {
		if got := settings[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if fromXML, err := c.Settings(t.Context()); err != nil || !maps.Equal(settings, fromXML) {
		t.Errorf("in XML: %v, %q", err, fromXML)
	}
	var status *StatusError
	if _, err := c.Settings(t.Context()); !errors.As(err, &status) || status.Status != http.StatusForbidden ||
		!strings.Contains(err.Error(), "yarn.admin.acl") {
		t.Errorf("forbidden: %v", err)
	}
	for range 2 {
		if s, err := c.Settings(t.Context()); err == nil || !strings.Contains(err.Error(), "the answer has none") {
			t.Errorf("no settings: %q, %v", s, err)
		}
	}
	if n := len(r.requests("GET /conf")); n != 5 {
		t.Errorf("%d requests, not 5", n)
	}
	if _, err := parseSettings("text/html", []byte("<html>")); err == nil || !strings.Contains(err.Error(), "text/html") {
		t.Errorf("a page: %v", err)
	}
}
