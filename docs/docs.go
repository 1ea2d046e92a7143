// Package docs carries the documents that commands quote, so that each text is written once.
package docs

import _ "embed" // for the documents

// Reasons is reasons.md: tables of all reason codes and operands.
//
//go:embed reasons.md
var Reasons string

// YARN is yarn.md, with tables of the phases and reasons of a worker of kind yarn.
//
//go:embed yarn.md
var YARN string

// OLAP is olap.md, with tables of the phases and reasons of a worker of kind trino or impala.
//
//go:embed olap.md
var OLAP string
