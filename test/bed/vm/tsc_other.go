//go:build !amd64

package vm

// ClockArgs returns kernel arguments for a guest's clock: none, on this architecture.
func ClockArgs() []string { return nil }
