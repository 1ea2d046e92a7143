package yarn

import (
	"net"
	"testing"
)

// TestNoProxy checks that the environment's proxy cannot connect in the place of the manager, whose dialer sees to it
// that a pool reaches only what it may.
func TestNoProxy(t *testing.T) {
	dial := (&net.Dialer{}).DialContext
	auth, base, err := Secret(nil).identity("yarn", dial)
	if err != nil || base.Proxy != nil || base.DialContext == nil || auth.Kerberos != nil || auth.User != "yarn" {
		t.Errorf("%v, %+v", err, auth)
	}
}
