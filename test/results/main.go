// Command results writes docs/results.md, one page with the newest figures, their goals and the best known peers'
// figures.
//
// The figures are documents {"name", "when", "machine", "commit", "metrics"} in docs/results.json. Documents that make
// bench left in out/bench replace older ones of the same name first. What a figure is called, and its goal, is in
// page.tmpl. A figure that no document has is listed as not measured.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	data := flag.String("data", "docs/results.json", "`file` of documents, which is updated")
	bench := flag.String("bench", "out/bench", "`folder` of newer documents, one a file")
	page := flag.String("page", "docs/results.md", "`file` to write")
	flag.Parse()
	if err := run(*data, *bench, *page); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

// run updates the documents and writes the page.
func run(data, bench, page string) error {
	docs, err := readAll(data)
	if err != nil {
		return err
	}
	newer, err := readBench(bench)
	if err != nil {
		return err
	}
	docs = update(docs, newer)
	if err := writeAll(data, docs); err != nil {
		return err
	}
	text, err := render(pageTemplate, docs)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(text), 0o644)
}
