package measure

import "fmt"

// Figures returns what formats the metrics of a run for a table: those whose names begin with a prefix. A figure that
// was not measured is a dash.
func Figures(metrics map[string]float64, prefix string) func(name, format string) string {
	return func(name, format string) string {
		if value, found := metrics[prefix+name]; found {
			return fmt.Sprintf(format, value)
		}
		return "–"
	}
}

// Percent formats a share from 0 to 1.
func Percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// MillisText formats milliseconds.
func MillisText(ms float64) string { return fmt.Sprintf("%.2f", ms) }

// Shares formats the weight of a pod, which may have none.
func Shares(n int64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprint(n)
}
