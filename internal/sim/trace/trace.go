// Package trace has what parts of a cluster, such as pods, used in the course of days.
package trace

// Step is the default length of the time that one value covers, in seconds.
const Step = 300

// Grid is the use of one part of a machine on its whole days, without holes.
type Grid struct {
	Name  string
	Limit float64
	Step  int64       // length of a value, in seconds: a minute, or [Step]
	Days  [][]float32 // use on each whole day, as a share of the limit
	Holes int         // values that were missing on these days, and repeat the one before
	Left  int         // days with values that are not whole, and left out
	Over  int         // values above the limit, which count as the limit
}
