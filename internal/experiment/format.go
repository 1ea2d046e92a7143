package experiment

import (
	"fmt"
	"math"
	"time"
)

// round cuts a figure to a number of decimals, so that a file of figures can be read.
func round(x float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(x*p) / p
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// off returns by how many percent a figure is off what it should be.
func off(is, should float64) float64 { return 100 * (is/should - 1) }

func offText(is, should float64) string { return fmt.Sprintf("%+.1f %%", off(is, should)) }

func shares(n int64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprint(n)
}
