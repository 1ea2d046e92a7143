package load

import (
	"math/rand/v2"
	"time"
)

// Rates is how a rate changes: its value in each of some parts of a time, which are equally long. A constant rate has
// one value.
type Rates []float64

// Times returns the rates, each times a factor.
func (r Rates) Times(factor float64) Rates {
	scaled := make(Rates, 0, len(r))
	for _, rate := range r {
		scaled = append(scaled, rate*factor)
	}
	return scaled
}

// schedule returns the moments at which requests are due: independent of each other, as those of many users are. The
// rates apply to a length, after a lead at the first rate. The moments after the lead are the same whatever the lead.
func (r Rates) schedule(lead, length time.Duration, seed uint64) []Request {
	all := r[:1].moments(nil, 0, lead, rand.New(rand.NewPCG(seed, 1)))
	return r.moments(all, lead, length, rand.New(rand.NewPCG(seed, 0)))
}

// moments adds those of a time that begins at begin.
//
// From one moment to the next as many requests are due, in the mean, as a random number says, whose mean is one. The
// part of that number that does not fit into one part of the time goes to the parts that follow.
func (r Rates) moments(all []Request, begin, length time.Duration, random *rand.Rand) []Request {
	each := length.Seconds() / float64(len(r))
	part, at := 0, 0.0
	for {
		due := random.ExpFloat64()
		for end := each * float64(part+1); due >= r[part]*(end-at); end += each {
			due, at = due-r[part]*(end-at), end
			if part++; part == len(r) {
				return all
			}
		}
		at += due / r[part]
		all = append(all, Request{Due: begin + time.Duration(at*float64(time.Second))})
	}
}
