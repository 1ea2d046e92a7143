package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// hidden stands for what a bundle must not have.
const hidden = "HIDDEN"

// kept are the prefixes of annotations that a bundle has: ours and their aliases. Others may hold anything, such as the
// values of environment variables that kubectl apply keeps.
var kept = []string{v1alpha1.Group + "/", "iqiyi.com/", "qos.gocrane.io/", "koordinator.sh/", "kubernetes.io/config."}

// strip takes out of an object, and of all objects in it, the values of environment variables, foreign annotations and
// managed fields.
func strip(object any) {
	switch o := object.(type) {
	case []any:
		for _, element := range o {
			strip(element)
		}
	case map[string]any:
		delete(o, "managedFields")
		if annotations, found := o["annotations"].(map[string]any); found {
			for key := range annotations {
				if !slices.ContainsFunc(kept, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
					annotations[key] = hidden
				}
			}
		}
		for _, key := range []string{"env", "extraEnv"} {
			variables, _ := o[key].([]any)
			for _, v := range variables {
				if variable, isObject := v.(map[string]any); isObject && variable["value"] != nil {
					variable["value"] = hidden
				}
			}
		}
		for _, field := range o {
			strip(field)
		}
	}
}

// named matches the name and the value of what looks like a secret, as in flags, logs, YAML and JSON. A value may be
// quoted, and the quotes escaped, as JSON in JSON has them.
var named = regexp.MustCompile(`(?i)((?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|credentials?)` +
	`[a-z0-9_.-]{0,40}\\?["']?\s*[=:]\s*)(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&"'{}\[\]\\]+)`)

// unnamed match values that look like secrets themselves, after what precedes them.
var unnamed = []*regexp.Regexp{
	regexp.MustCompile(`(?i)((?:bearer|basic)\s+)[a-z0-9+/=_.~-]{6,}`), // of the header Authorization
	regexp.MustCompile(`(://[^/\s:@"']*:)[^/\s@"']+@`),                 // of a URL
	regexp.MustCompile(`()eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END|\z)`),
}

// inJSON matches the name of a field of JSON, whose value is no secret unless it is a string.
var inJSON = regexp.MustCompile(`"\s*:\s*$`)

// scrub replaces what looks like a secret in a text. JSON stays JSON.
func scrub(text []byte) []byte {
	text = named.ReplaceAllFunc(text, func(found []byte) []byte {
		m := named.FindSubmatch(found)
		name, value := m[1], string(m[2])
		quote := value[:len(value)-len(strings.TrimLeft(value, `\"'`))]
		if quote == "" && inJSON.Match(name) {
			return found
		}
		return append(append([]byte{}, name...), quote+hidden+quote...)
	})
	for _, secret := range unnamed {
		text = secret.ReplaceAll(text, []byte("${1}"+hidden))
	}
	return text
}
