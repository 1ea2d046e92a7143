package experiment

import "github.com/waterline-io/waterline/internal/journal"

// eachRound reads the journal in a run directory of the agent, oldest round first. Its last line may be half written.
func eachRound(dir string, do func(*journal.Round)) error {
	var failed error
	for round, err := range journal.Read(dir) {
		if failed != nil {
			return failed
		}
		if failed = err; err == nil {
			do(&round)
		}
	}
	return nil
}
