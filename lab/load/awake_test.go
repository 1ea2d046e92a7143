package load

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAwake checks on this machine's kernel that idle CPUs enter no state but the first, which polls.
func TestAwake(t *testing.T) {
	states, err := filepath.Glob("/sys/devices/system/cpu/cpu*/cpuidle/state[1-9]*/usage")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(latencyDevice); len(states) == 0 || err != nil || os.Geteuid() != 0 {
		t.Skip("the kernel has no states of idle CPUs, or this user may not choose among them")
	}
	entered := func() (sum int64) {
		for _, state := range states {
			text, err := os.ReadFile(state)
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	awake, err := Awake()
	if err != nil {
		t.Fatal(err)
	}
	defer awake.Close()
	time.Sleep(50 * time.Millisecond) // CPUs that sleep wake up, and are counted then
	before := entered()
	time.Sleep(200 * time.Millisecond)
	if n := entered() - before; n != 0 {
		t.Errorf("idle CPUs slept %d times", n)
	}
}
