package slack

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestPart compares part with numbers that cannot overflow.
func TestPart(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		v, n, of := r.Int64()>>r.IntN(63), r.Int64()>>r.IntN(63), r.Int64()>>r.IntN(63)
		if of == 0 {
			continue
		}
		want := new(big.Int).Mul(big.NewInt(min(v, maxAmount)), big.NewInt(n))
		want.Quo(want, big.NewInt(of))
		if want.Cmp(big.NewInt(maxAmount)) > 0 {
			want.SetInt64(maxAmount)
		}
		if got := part(v, n, of); got != want.Int64() {
			t.Fatalf("%d·%d/%d = %d, want %d", v, n, of, got, want)
		}
	}
}
