package yarn

import "strings"

// SparkProperties returns the settings of a file in the format of spark-defaults.conf.
func SparkProperties(content string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(content) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && !strings.HasPrefix(name, "#") {
			all[name] = strings.TrimSpace(value)
		}
	}
	return all
}
