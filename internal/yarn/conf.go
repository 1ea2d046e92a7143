package yarn

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
)

// Settings are the properties of a ResourceManager by name, as its process has them: Hadoop's defaults, and what the
// files *-site.xml changed. Those of capacity-scheduler.xml are not among them (seen in 3.5.0); [RM.Scheduler] shows
// what follows from them. A property without a value is not there. Hadoop blanks out passwords.
type Settings map[string]string

// propertyJSON is a property as Hadoop 3.5 writes it in JSON and in XML.
type propertyJSON struct {
	Key   string `json:"key" xml:"name"`
	Value string `json:"value" xml:"value"`
}

// Settings returns the settings of the active ResourceManager: 1,100 properties in 140 kB. Where
// hadoop.security.instrumentation.requires.admin is set, only users of yarn.admin.acl may read them; for others the
// error is a [StatusError] with status 403.
func (c *RM) Settings(ctx context.Context) (Settings, error) {
	// A ResourceManager on standby would answer with its own settings.
	active, err := c.Active(ctx)
	if err != nil {
		return nil, err
	}
	a, err := c.send(ctx, active.Address, request{method: http.MethodGet, path: "/conf"})
	if err != nil {
		return nil, err
	}
	return parseSettings(a.kind, a.content)
}

// parseSettings reads settings in JSON, or in XML, which some releases answer to a request for JSON.
func parseSettings(kind string, content []byte) (Settings, error) {
	var all struct {
		Properties list[propertyJSON] `json:"properties" xml:"-"`
		Elements   []propertyJSON     `json:"-" xml:"property"`
	}
	var err error
	switch kind {
	case "application/json":
		err = json.Unmarshal(content, &all)
	case "text/xml", "application/xml":
		err = xml.Unmarshal(content, &all)
	default:
		err = fmt.Errorf("the answer is %q, neither JSON nor XML", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("the settings of the ResourceManager: %w", err)
	}
	settings := Settings{}
	for _, p := range append(all.Properties, all.Elements...) {
		if p.Key != "" {
			settings[p.Key] = p.Value
		}
	}
	if len(settings) == 0 {
		return nil, errors.New("the settings of the ResourceManager: the answer has none")
	}
	return settings, nil
}
