package yarn

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// Label is a node label of the cluster.
type Label = model.NodeLabel

type labelJSON struct {
	Name      string `json:"name"`
	Exclusive *flag  `json:"exclusivity"`
}

func (j labelJSON) label() Label {
	return Label{Name: j.Name, Exclusive: j.Exclusive == nil || bool(*j.Exclusive)}
}

// Labels returns the labels of the cluster. More than 1,000 are an error.
func (c *RM) Labels(ctx context.Context) ([]Label, error) {
	var labels []Label
	all := listing{path: []string{"nodeLabelInfo"}, most: maxLabels}
	err := c.list(ctx, "/get-node-labels", nil, all, func() { labels = nil },
		func(decode func(any) error) error {
			var j labelJSON
			err := decode(&j)
			labels = append(labels, j.label())
			return err
		})
	if err != nil {
		return nil, err
	}
	return labels, nil
}

// AddLabel adds a label to the cluster; a label that exists is no error. A label's exclusivity cannot be changed.
func (c *RM) AddLabel(ctx context.Context, l Label) error {
	body := map[string][]Label{"nodeLabelInfo": {l}}
	if err := c.Do(ctx, http.MethodPost, "/add-node-labels", body, nil); err != nil {
		return err
	}
	var have []Label
	return c.until(ctx, func() (ok bool, err error) {
		have, err = c.Labels(ctx)
		return slices.Contains(have, l), err
	}, func() *NoEffectError {
		return &NoEffectError{"the cluster's node labels", fmt.Sprintf("%+v among them", l), fmt.Sprintf("%+v", have)}
	})
}

// NodeLabels returns which node has which label, by node: host:port, or host:0 for every NodeManager on a host,
// whether it exists yet or not. Nodes of the default partition are left out. More than 50,000 are an error.
func (c *RM) NodeLabels(ctx context.Context) (map[string]string, error) {
	type entry struct {
		Key   string `json:"key"`
		Value optional[struct {
			Labels list[labelJSON] `json:"nodeLabelInfo"`
		}] `json:"value"`
	}
	labels := map[string]string{}
	err := c.list(ctx, "/get-node-to-labels", nil, listing{path: []string{"nodeToLabels", "entry"}, most: maxNodes},
		func() { clear(labels) }, func(decode func(any) error) error {
			var e entry
			err := decode(&e)
			for _, l := range e.Value.v.Labels { // YARN allows one
				labels[e.Key] = l.Name
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	return labels, nil
}

// SetNodeLabels gives each of these nodes the label beside it, or none if that is empty. A node is host:port, or host
// for every NodeManager on that host, whether it exists yet or not: it then registers with the label.
func (c *RM) SetNodeLabels(ctx context.Context, labels map[string]string) error {
	type entry struct {
		Node   string   `json:"nodeId"`
		Labels []string `json:"labels"`
	}
	want := map[string]string{}
	var entries []entry
	for _, node := range slices.Sorted(maps.Keys(labels)) {
		id := node
		if !strings.Contains(id, ":") {
			id += ":0" // all NodeManagers of the host
		}
		if err := checkNodeID(id); err != nil {
			return err
		}
		e := entry{id, []string{}}
		if want[id] = labels[node]; want[id] != "" {
			e.Labels = append(e.Labels, want[id])
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil
	}
	body := map[string][]entry{"nodeToLabels": entries}
	if err := c.Do(ctx, http.MethodPost, "/replace-node-to-labels", body, nil); err != nil {
		return err
	}
	var have map[string]string
	return c.until(ctx, func() (ok bool, err error) {
		have, err = c.NodeLabels(ctx)
		for id, label := range want {
			if err != nil || have[id] != label {
				return false, err
			}
		}
		return true, err
	}, func() *NoEffectError {
		return &NoEffectError{"labels of nodes", fmt.Sprintf("%q", want), fmt.Sprintf("%q", have)}
	})
}
