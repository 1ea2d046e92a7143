package decide_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected output of transcripts; commit that only if you understand what caused it")

// TestTranscripts runs the golden cases of every rule. A case is a text file of blocks. A block is commands, a line of
// four dashes, and what was decided. Between blocks the host is imagined to do all that the plan says.
//
//	node cpu=64 [kubelet=unknown|noquota|static|nopodcgroups] [readonly] [v2] [cpus=2x1x2x4x2] [offline=LIST] [reserved=LIST]
//	    [pool=LIST] [taken=LIST] [nocpusets]
//	policy [mode=M] [scope=S] [quota=Q] [max=N] [override] [promote] [namespace=key:value:max] [pods=key:value:shares] [cpus=key:value:MODE]
//	pod NAME class=C [request=MILLI] [limit=MILLI] [weight=N] [quota=Q] [self] [critical] [ended] [idle] [nocgroup]
//	    [label=key:value] [space=key:value] [containers=ID:LIMIT,...] [cpus=MODE] [place=P] [app=NAME:CPUS[:REQUEST]]...
//	    [podlevel=CPUS] [age=SECONDS] [localmemory=BYTES] [job=NAME:CPUS[:LIMIT[:MEMORY]]]...
//	gone NAME                         deleted NAME (its cgroup still stands)
//	uses DIR MEMORY                   what the group uses, below which the host writes no limit
//	pods unknown|known
//	confined DIR LIST
//	overwritten DIR KNOB VALUE        rejected DIR KNOB VALUE ERRNO        fight DIR KNOB DURATION
//	tick DURATION                     decide (a round that is not shown)
//	node real=CPUS[/MEMORY] capacity=CPUS[/MEMORY] allocatable=CPUS[/MEMORY] reservedcpu=CPUS reservedmemory=MEMORY watermark=MEMORY
//	policy cpu=METHOD:WATERLINE[:MID[:RATIO]] memory=METHOD:WATERLINE[:MID[:RATIO]], in thousandths; METHOD none: nothing is sold; koordinator
//	pod ... [qos=CLASS] [used=CPUS/MEMORY] [usedage=DURATION] [memory=MEMORY] [mid=CPUS/MEMORY] [batch=CPUS/MEMORY] [koordinator]
//	load node=CPUS/MEMORY pods=CPUS/MEMORY [age=DURATION]    from here on each round measures that; a node has a real capacity
//	load none                         nothing was measured yet; load off: there is no measurement at all
//	peak hour=CPUS/MEMORY [day=CPUS/MEMORY]    what the predictor says
//	withdrawn yes|no                  by the manager
//	run DURATION                      a round each second, not shown
//	clock DURATION                    the wall clock is set forward; back if it is negative
//	busy                              also print the CPU that each pod gets while all of them want everything
func TestTranscripts(t *testing.T) {
	var files []string
	for _, pattern := range []string{"testdata/*.txt", "*/testdata/*.txt"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatal("no transcripts found")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runTranscript(t, file) })
	}
}

func runTranscript(t *testing.T, file string) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	var got strings.Builder
	commands := true
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case commands && line == "----":
			commands = false
			fmt.Fprintf(&got, "----\n%s", w.decide())
		case commands:
			fmt.Fprintln(&got, line)
			if err := w.do(line); err != nil {
				t.Fatalf("%s: %q: %v", file, line, err)
			}
		case line == "":
			commands = true
			fmt.Fprintln(&got)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got.String() != string(content) {
		t.Errorf("%s: decided differently. If you understand what caused it, rewrite with -rewrite and commit. Got:\n%s", file, got.String())
	}
}
