package trace

import (
	"math"
	"math/rand/v2"
)

// Shape describes the use of a generated machine. All fields but Days are shares of its limit.
type Shape struct {
	Days  int
	Base  float64 // use at night
	Daily float64 // additional use at noon
	Noise float64 // standard deviation of each value
	Burst float64 // additional use in bursts of half an hour, one every other day on average, at a random time
}

// Online returns a shape like that of machines with online services.
func Online(days int) Shape {
	return Shape{Days: days, Base: 0.2, Daily: 0.3, Noise: 0.03, Burst: 0.3}
}

// Generate returns a machine with generated use and a limit of 100. The same shape and seed give the same use.
func Generate(s Shape, seed uint64) Machine {
	const values, halfHour = 24 * 3600 / Step, 1800 / Step
	random := rand.New(rand.NewPCG(seed, 1))
	m := Machine{Name: "generated", Limits: []float64{100}, Parts: [][]float64{nil}}
	burst := 0
	for i := range s.Days * values {
		if random.IntN(2*values) == 0 {
			burst = halfHour
		}
		share := s.Base + s.Daily*(1-math.Cos(2*math.Pi*float64(i)/values))/2 + s.Noise*random.NormFloat64()
		if burst > 0 {
			share += s.Burst
			burst--
		}
		m.Times = append(m.Times, int64(i)*Step)
		m.Parts[0] = append(m.Parts[0], 100*min(max(share, 0), 1))
	}
	return m
}
