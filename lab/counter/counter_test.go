package counter

import "testing"

func TestCounter(t *testing.T) {
	c := New("frame=")
	for _, part := range []string{"frame=", "12\nfps=3\nfra", "me= 20 \nprogress=continue\nframe=x\nframe=3"} {
		if n, err := c.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if c.Count() != 20 {
		t.Errorf("%v frames", c.Count())
	}
}
