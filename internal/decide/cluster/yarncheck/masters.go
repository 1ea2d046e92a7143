package yarncheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// propertyMasters is the label of masters whose application does not name one for its master. It goes before the
// application's label and the queue's default. Hadoop has it since 3.4.0.
const propertyMasters = "yarn.resourcemanager.node-labels.am.default-node-label-expression"

// masterDefault returns the label of masters whose application does not name one for its master, and whether there is
// one. A blank stands for the default partition; an empty value is none.
func masterDefault(in *Input) (label string, set bool) {
	value := in.Settings[propertyMasters]
	return strings.TrimSpace(value), value != ""
}

func masters(in *Input, to *findings) {
	fixed, set := masterDefault(in)
	if set && fixed != in.Label {
		return
	}
	var land, wait []string
	for _, q := range leaves(in) {
		if !gets(&q, in.Label) || q.DefaultLabel != in.Label && !set {
			continue
		}
		land = append(land, q.Path)
		for _, p := range q.Partitions {
			if p.Label == in.Label && p.MasterPercent == 0 {
				wait = append(wait, q.Path)
			}
		}
	}
	if len(land) == 0 {
		return
	}
	clients := "In older releases, take the label from the queue's default-node-label-expression, and let jobs ask for " +
		"it for their tasks only: mapreduce.map.node-label-expression, mapreduce.reduce.node-label-expression, " +
		"spark.yarn.executor.nodeLabelExpression."
	f := Finding{
		Code: MastersOnLabel, Severity: Warning, Where: land, Property: defaultOf(pathOf(land)), Value: in.Label,
		What: "Application masters of these queues land on workers.",
		Why:  "A worker that leaves takes the masters along, and their applications start anew, or fail.",
		Fix: Fix{propertyMasters, " ", "The value is one blank, which stands for the default partition; or the label of " +
			"fixed nodes. Hadoop has the property since 3.4.0. " + restart + " " + clients},
	}
	if set {
		f.Property, f.Value = propertyMasters, fixed
	}
	to.add(f)
	if len(wait) > 0 {
		property := fmt.Sprintf("yarn.scheduler.capacity.%s.accessible-node-labels.%s.maximum-am-resource-percent",
			pathOf(wait), in.Label)
		to.add(Finding{
			Code: MasterPercentZero, Severity: Warning, Where: wait, Property: property, Value: "0",
			What: "A limit of 0 does not keep masters off the workers.",
			Why: "A queue's first master starts there in spite of the limit. All other applications of the queue are " +
				"accepted, and wait for ever.",
			Fix: Fix{property, "0.1", "And keep masters off by " + propertyMasters + ". " + refreshQueues},
		})
	}
}

func masterLabel(in *Input, to *findings) {
	fixed, set := masterDefault(in)
	if !set || fixed == "" {
		return
	}
	f := Finding{
		Code: MasterLabelRefused, Severity: Error, Property: propertyMasters, Value: fixed,
		Why: "The ResourceManager refuses their applications.",
	}
	if !slices.ContainsFunc(in.Labels, func(l model.NodeLabel) bool { return l.Name == fixed }) {
		f.What = "The label of masters does not exist. There are: " + labelNames(in.Labels) + "."
		f.Fix.Do = "Run " + addLabel(fixed) + ", and label the fixed nodes."
		to.add(f)
		return
	}
	for _, q := range leaves(in) {
		if !mayAsk(&q, fixed) {
			f.Where = append(f.Where, q.Path)
		}
	}
	if len(f.Where) == 0 {
		return
	}
	f.What = "These queues may not ask for the label of masters."
	f.Fix = Fix{fmt.Sprintf("yarn.scheduler.capacity.%s.accessible-node-labels", pathOf(f.Where)), fixed,
		"Add it to what the queues have, with a capacity. " + refreshQueues}
	to.add(f)
}

func borrowing(in *Input, to *findings) {
	const property = "yarn.resourcemanager.node-labels.am.allow-non-exclusive-allocation"
	shared := slices.ContainsFunc(in.Labels, func(l model.NodeLabel) bool { return l.Name == in.Label && !l.Exclusive })
	if shared && in.Settings[property] == "true" {
		to.add(Finding{
			Code: MastersBorrowLabel, Severity: Warning, Property: property, Value: "true",
			What: "Masters of the default partition land on idle workers.",
			Why:  "The label is not exclusive. A worker that leaves takes the masters along, and their applications start anew.",
			Fix:  Fix{property, "false", restart},
		})
	}
}

func fixedNodes(in *Input, to *findings) {
	fixed, _ := masterDefault(in)
	where := "the default partition"
	if fixed != "" {
		where = "the partition " + fixed
	}
	for _, n := range in.Nodes {
		if n.Running && n.Label == fixed && fixed != in.Label {
			return
		}
	}
	to.add(Finding{
		Code: NoFixedNodes, Severity: Error, What: "No node of " + where + " runs.",
		Why: "Application masters, and streaming jobs such as Flink's, need nodes that stay. Without them, applications " +
			"wait for ever, or run their masters on workers.",
		Fix: Fix{Do: "Keep nodes that do not belong to the pool, and do not give them its label."},
	})
}
