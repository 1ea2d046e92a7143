package model

import "fmt"

// Size is an amount of memory and CPU as YARN counts them. What is available on a NodeManager is negative while it is
// overcommitted.
type Size struct {
	MemoryMiB int64 `json:"memoryMiB"`
	VCores    int64 `json:"vcores"`
}

// Fits reports whether one size fits into another.
func (s Size) Fits(into Size) bool { return s.MemoryMiB <= into.MemoryMiB && s.VCores <= into.VCores }

// Or returns the larger of each amount.
func (s Size) Or(o Size) Size { return Size{max(s.MemoryMiB, o.MemoryMiB), max(s.VCores, o.VCores)} }

// And returns the smaller of each amount.
func (s Size) And(o Size) Size { return Size{min(s.MemoryMiB, o.MemoryMiB), min(s.VCores, o.VCores)} }

// Plus returns the sum of two sizes.
func (s Size) Plus(o Size) Size { return Size{s.MemoryMiB + o.MemoryMiB, s.VCores + o.VCores} }

// String returns the size for people.
func (s Size) String() string { return fmt.Sprintf("%dMiB,%dvcores", s.MemoryMiB, s.VCores) }
