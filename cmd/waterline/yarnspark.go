package main

import (
	"fmt"
	"os"
	"strings"
)

// readSparkDefaults reads a file in the format of spark-defaults.conf: a property and its value a line, with blanks, an
// equals sign or a colon between them, as in properties files of Java.
func readSparkDefaults(path string) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--spark-defaults: %w", err)
	}
	all := map[string]string{}
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		line = strings.TrimSpace(line)
		switch {
		case line == "", line[0] == '#', line[0] == '!':
			continue
		case strings.HasSuffix(line, `\`):
			return nil, fmt.Errorf("--spark-defaults: %s:%d: %q goes on in the next line, which this command does not read; "+
				"write it in one line", path, number, line)
		}
		end := strings.IndexAny(line, " \t=:")
		if end < 0 {
			all[line] = ""
			continue
		}
		value := strings.TrimLeft(line[end:], " \t")
		value = strings.TrimPrefix(strings.TrimPrefix(value, "="), ":")
		all[line[:end]] = strings.TrimSpace(value)
	}
	return all, nil
}
