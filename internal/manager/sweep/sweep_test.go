package sweep

import (
	"strings"
	"testing"
)

// TestSlippedText checks that the event about a slipped pod names each cause.
func TestSlippedText(t *testing.T) {
	got := slippedText("job")
	for _, cause := range []string{"nothing was sold when it was created", "unreachable", "not batch yet"} {
		if !strings.Contains(got, cause) {
			t.Errorf("%q lacks %q", got, cause)
		}
	}
}
