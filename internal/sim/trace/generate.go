package trace

import (
	"math"
	"math/rand/v2"
	"slices"
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

// Generate returns generated use in percent of the limit, in values of [Step]. Equal shapes and seeds give equal use.
func Generate(s Shape, seed uint64) []float64 {
	const values, halfHour = 24 * 3600 / Step, 1800 / Step
	random := rand.New(rand.NewPCG(seed, 1))
	var use []float64
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
		use = append(use, 100*min(max(share, 0), 1))
	}
	return use
}

// GenerateGrid returns what [Generate] generates as days.
func GenerateGrid(name string, s Shape, seed uint64) Grid {
	g := Grid{Name: name, Limit: 100, Step: Step}
	for values := range slices.Chunk(Generate(s, seed), 24*3600/Step) {
		day := make([]float32, len(values))
		for i, v := range values {
			day[i] = float32(v / g.Limit)
		}
		g.Days = append(g.Days, day)
	}
	return g
}
