// Command next prints a go build overlay that makes this version of the agent a newer one, which owns another cgroup
// file and has another form of state. Tests upgrade to it and go back.
//
//	go run ./test/bed/cmd/next DIR >overlay.json
//	go build -overlay overlay.json ./cmd/waterline-agent
//
// It is run at the root of the repository. Changed copies of source files go to DIR, under names that no
// tool takes for a package.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// change replaces a text that occurs once in a file.
type change struct{ file, from, to string }

// changes make the newer version. Its file takes 0 or 1, and nobody else writes it in the cgroup of a pod.
var changes = []change{
	{"internal/model/plan.go", "func Knobs() []Knob {", "const Future Knob = MemoryHigh + 1\n\nfunc Knobs() []Knob {"},
	{"internal/model/plan.go", "MemoryLow, MemoryHigh}", "MemoryLow, MemoryHigh, Future}"},
	{"internal/model/plan.go", "\tcase MemoryHigh:\n", "\tcase Future:\n\t\treturn \"future\"\n\tcase MemoryHigh:\n"},
	{
		"internal/cgroup/knob.go", "\tcase v == V2 && (k.Protects()",
		"\tcase k == model.Future && v == V1:\n\t\treturn \"notify_on_release\"\n" +
			"\tcase k == model.Future:\n\t\treturn \"memory.oom.group\"\n\tcase v == V2 && (k.Protects()",
	},
	{
		"internal/decide/node/weight/weight.go", "case o.Knob == model.Identity:",
		"case o.Knob == model.Identity || o.Knob == model.Future:",
	},
	{
		"internal/decide/node/node.go", "\t\tplan.Settings = memory.Decide(plan.Settings, &n, &policy)\n",
		"\t\tplan.Settings = memory.Decide(plan.Settings, &n, &policy)\n" +
			"\t\tfor _, pod := range n.Pods {\n\t\t\tif group, exists := n.Tree.Pods[pod.UID]; exists {\n" +
			"\t\t\t\tplan.Settings = append(plan.Settings, model.Setting{\n" +
			"\t\t\t\t\tFile: model.File{Dir: group.Dir, Knob: model.Future}, Value: model.Number(1),\n" +
			"\t\t\t\t\tReason: model.Reason{Code: model.Weighted},\n\t\t\t\t})\n\t\t\t}\n\t\t}\n",
	},
	{"internal/agent/store/state.go", `"waterline-state 1"`, `"waterline-state 2"`},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: next DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "next:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	changed := map[string]string{}
	for _, c := range changes {
		content, known := changed[c.file]
		if !known {
			source, err := os.ReadFile(c.file)
			if err != nil {
				return err
			}
			content = string(source)
		}
		if n := strings.Count(content, c.from); n != 1 {
			return fmt.Errorf("%s contains %q %d times, want once", c.file, c.from, n)
		}
		changed[c.file] = strings.Replace(content, c.from, c.to, 1)
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for file, content := range changed {
		from, err := filepath.Abs(file)
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_")+".txt")
		if err = errors.Join(err, os.WriteFile(to, []byte(content), 0o600)); err != nil {
			return err
		}
		if overlay.Replace[from], err = filepath.Abs(to); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(overlay)
}
