package main

import (
	"encoding/xml"
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
	for i, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "", line[0] == '#', line[0] == '!':
			continue
		case strings.HasSuffix(line, `\`):
			return nil, fmt.Errorf("--spark-defaults: %s:%d: %q goes on in the next line, which this command does not read; "+
				"write it in one line", path, i+1, line)
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

// readSite reads a configuration file of Hadoop that a flag names. Variables in values stay as they are.
func readSite(flag, path string) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	var file struct {
		XMLName  xml.Name   `xml:"configuration"`
		Includes []struct{} `xml:"include"`
		All      []struct {
			Name  string `xml:"name"`
			Value string `xml:"value"`
		} `xml:"property"`
	}
	if err := xml.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("--%s: %s: %w", flag, path, err)
	}
	if len(file.Includes) > 0 {
		return nil, fmt.Errorf("--%s: %s includes another file, which this command does not read; name a file with all "+
			"properties", flag, path)
	}
	all := map[string]string{}
	for _, p := range file.All {
		all[strings.TrimSpace(p.Name)] = strings.TrimSpace(p.Value)
	}
	return all, nil
}
