package experiment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// course is how a rate changes: what it is in each of some parts of a time, which are equally long. A rate that does not
// change is a course of one.
type course []float64

// String writes what [parseCourse] reads.
func (c course) String() string {
	text := make([]string, 0, len(c))
	for _, rate := range c {
		text = append(text, strconv.FormatFloat(rate, 'g', -1, 64))
	}
	return strings.Join(text, ",")
}

func parseCourse(text string) (course, error) {
	var c course
	for cell := range strings.SplitSeq(text, ",") {
		rate, err := strconv.ParseFloat(cell, 64)
		if err != nil || rate < 0 || math.IsInf(rate, 0) || math.IsNaN(rate) {
			return nil, fmt.Errorf("%q is no rate: write numbers that are not negative, with commas between them", cell)
		}
		c = append(c, rate)
	}
	return c, nil
}

// times returns the course of so many times the rate.
func (c course) times(factor float64) course {
	scaled := make(course, 0, len(c))
	for _, rate := range c {
		scaled = append(scaled, rate*factor)
	}
	return scaled
}

// schedule returns the moments at which to ask: independent of each other, as those of many users are. The course takes a
// length, after a lead at its first rate. The moments after the lead are the same whatever the lead.
func (c course) schedule(lead, length time.Duration, seed uint64) []asked {
	all := c[:1].moments(nil, 0, lead, rand.New(rand.NewPCG(seed, 1)))
	return c.moments(all, lead, length, rand.New(rand.NewPCG(seed, 0)))
}

// moments adds those of a course that begins at a time.
//
// From one moment to the next as many are due, in the mean, as a random number says, whose mean is one. What of it does not come
// in one part of the course comes in those that follow.
func (c course) moments(all []asked, begin, length time.Duration, random *rand.Rand) []asked {
	each := length.Seconds() / float64(len(c))
	part, at := 0, 0.0
	for {
		due := random.ExpFloat64()
		for end := each * float64(part+1); due >= c[part]*(end-at); end += each {
			due, at = due-c[part]*(end-at), end
			if part++; part == len(c) {
				return all
			}
		}
		at += due / c[part]
		all = append(all, asked{due: begin + time.Duration(at*float64(time.Second))})
	}
}
