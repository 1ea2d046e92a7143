// Package logs reads the logs of the test bed's processes.
package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Tails returns the end of every log in a directory, for when something went wrong.
func Tails(dir string) string {
	var tails strings.Builder
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		const enough = 3000
		if len(content) > enough {
			content = content[len(content)-enough:]
		}
		fmt.Fprintf(&tails, "\n--- %s\n%s", filepath.Base(file), content)
	}
	return tails.String()
}
