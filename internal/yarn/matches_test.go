package yarn

import (
	"regexp"
	"testing"
)

// matches checks that an error matches a regular expression.
func matches(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !regexp.MustCompile("(?s)"+want).MatchString(err.Error()) {
		t.Errorf("%v does not match %q", err, want)
	}
}
