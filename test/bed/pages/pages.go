// Package pages reads the fenced blocks of the documentation, so that tests can run them as they are written.
package pages

import (
	"fmt"
	"os"
	"strings"
)

// Block is a fenced block of a Markdown file.
type Block struct {
	Language string // after the fence; empty: none
	Text     string // without the indentation of its fence
	Mark     string // text of the HTML comment in the line before the fence; empty: there is none
	Line     int    // of the opening fence, from 1 on
}

// Shell reports whether a block consists of commands.
func (b *Block) Shell() bool { return b.Language == "console" || b.Language == "sh" }

// Commands returns the commands of a block: the lines after a prompt, if there are such lines, else all of it. What
// follows a prompt's line is its output.
func (b *Block) Commands() string {
	var commands strings.Builder
	for line := range strings.Lines(b.Text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands.WriteString(command)
		}
	}
	if commands.Len() == 0 {
		return b.Text
	}
	return commands.String()
}

// Read returns the fenced blocks of a file.
func Read(file string) ([]Block, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the docs: %w", err)
	}
	var all []Block
	var block *Block // the one that is open
	indent, before := "", ""
	for i, line := range strings.SplitAfter(string(content), "\n") {
		bare := strings.TrimSpace(line)
		language, fence := strings.CutPrefix(bare, "```")
		switch {
		case fence && block == nil:
			indent = line[:strings.Index(line, "```")]
			block = &Block{Language: language, Mark: mark(before), Line: i + 1}
		case fence:
			all = append(all, *block)
			block = nil
		case block != nil:
			block.Text += strings.TrimPrefix(line, indent)
		}
		before = bare
	}
	return all, nil
}

// mark returns the text of an HTML comment.
func mark(line string) string {
	text, ok := strings.CutPrefix(line, "<!--")
	if !ok {
		return ""
	}
	return strings.TrimSpace(strings.TrimSuffix(text, "-->"))
}

// Texts returns the contents of a file's blocks in a language, such as yaml.
func Texts(file, language string) ([]string, error) {
	blocks, err := Read(file)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, b := range blocks {
		if b.Language == language {
			all = append(all, b.Text)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no block in the language %q", file, language)
	}
	return all, nil
}

// RunBy returns the blocks of a file that are marked as run by a test, with "<!-- test: NAME -->" before the fence.
func RunBy(file, test string) ([]Block, error) {
	blocks, err := Read(file)
	if err != nil {
		return nil, err
	}
	var all []Block
	for _, b := range blocks {
		if b.Mark == "test: "+test {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no block that %s runs", file, test)
	}
	return all, nil
}
