package journal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// Difference is a field in which a replayed plan differs from the recorded one.
type Difference struct {
	Field    string `json:"field"`    // its path in the plan, such as Settings[kubepods/burstable cpu.shares].Value
	Recorded string `json:"recorded"` // in JSON; "": the recorded plan lacks it
	Replayed string `json:"replayed"` // in JSON; "": the replayed plan lacks it
}

// Replay decides a round again from its recorded input, and returns in which fields the plan differs; none if it
// agrees. A version that cannot decide the round at all differs in everything: the field is then [WholePlan].
func Replay(r *node.Round) ([]Difference, error) {
	plan, crash := decide(r)
	if crash != "" {
		return []Difference{{Field: WholePlan, Recorded: "a plan", Replayed: crash}}, nil
	}
	recorded, err := tree(&r.Plan)
	if err != nil {
		return nil, fmt.Errorf("the recorded plan: %w", err)
	}
	replayed, err := tree(&plan)
	if err != nil {
		return nil, fmt.Errorf("the replayed plan: %w", err)
	}
	var all []Difference
	compare("", recorded, replayed, &all)
	return all, nil
}

// WholePlan is the field of a [Difference] between a plan and none.
const WholePlan = "the plan"

// decide decides a round again. A journal of another version, or a damaged one, can have an input that no agent would
// observe, so a crash is a result like any other.
func decide(r *node.Round) (plan model.Plan, crash string) {
	defer func() {
		if why := recover(); why != nil {
			crash = fmt.Sprintf("none: this version crashes on the round: %v", why)
		}
	}()
	plan, _ = node.Decide(r.Node, r.Policy, r.State)
	return plan, ""
}

// tree returns a plan as encoding/json decodes it, so that both plans went through the same encoding.
func tree(plan *model.Plan) (any, error) {
	text, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber() // numbers above 2^53 would lose digits
	var v any
	return v, decoder.Decode(&v)
}

// compare adds the differences between two values at a path. A missing value, null and an empty list are the same.
func compare(path string, recorded, replayed any, all *[]Difference) {
	if empty(recorded) && empty(replayed) {
		return
	}
	a, aFields := fields(recorded)
	b, bFields := fields(replayed)
	if !aFields || !bFields {
		if x, y := encoded(recorded), encoded(replayed); x != y {
			*all = append(*all, Difference{strings.TrimPrefix(path, "."), x, y})
		}
		return
	}
	names := map[string]any{}
	maps.Copy(names, a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		compare(path+name, a[name], b[name], all)
	}
}

// fields returns the parts of an object or a list by the path that leads to them; false for any other value.
func fields(v any) (map[string]any, bool) {
	switch v := v.(type) {
	case nil:
		return nil, true
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, field := range v {
			all["."+name] = field
		}
		return all, true
	case []any:
		all := make(map[string]any, len(v))
		for i, element := range v {
			key := "[" + label(element, i) + "]"
			if _, twice := all[key]; twice {
				key = "[" + strconv.Itoa(i) + "]"
			}
			all[key] = element
		}
		return all, true
	}
	return nil, false
}

// label names an element of a list as people do: a file by its path and setting, anything of a pod by the pod's UID.
func label(element any, i int) string {
	object, isObject := element.(map[string]any)
	if !isObject {
		return strconv.Itoa(i)
	}
	if dir, isFile := object["Dir"].(string); isFile {
		if knob, err := strconv.Atoi(fmt.Sprint(object["Knob"])); err == nil {
			return dir + " " + model.Knob(knob).String()
		}
		return dir
	}
	uid, isPod := object["UID"].(string)
	if !isPod || uid == "" {
		return strconv.Itoa(i)
	}
	if container, named := object["Container"].(string); named && container != "" {
		return uid + "/" + container
	}
	return uid
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

func encoded(v any) string {
	if v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
