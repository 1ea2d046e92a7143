package kernel_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

const holdEnv = "WATERLINE_TEST_HOLD"

// TestMemoryHolder is not a test. [TestMeterMemory] runs it as the process that allocates memory. It carries out each
// line of its input.
func TestMemoryHolder(t *testing.T) {
	if os.Getenv(holdEnv) == "" {
		t.Skip("runs only as a helper process")
	}
	var anon []byte
	piece := make([]byte, 1<<20)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		what, path, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "anon":
			anon = make([]byte, 64<<20)
			for i := 0; i < len(anon); i += 4096 {
				anon[i] = 1
			}
		case "grow": // without end, by so many KiB in 10 ms
			size, err := strconv.Atoi(path)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for ; ; time.Sleep(10 * time.Millisecond) {
					// The process stays until it is ended.
					piece, err := unix.Mmap(-1, 0, size<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
					if err != nil {
						return
					}
					for i := 0; i < len(piece); i += 4096 {
						piece[i] = 1
					}
				}
			}()
		case "free":
			anon = nil
			debug.FreeOSMemory()
		case "write":
			// In small pieces: a buffer as large as the file may itself become anonymous memory, depending on the kernel.
			f, err := os.Create(path)
			for i := 0; i < 64 && err == nil; i++ {
				_, err = f.Write(piece)
			}
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		case "read":
			f, err := os.Open(path)
			if err == nil {
				_, err = io.Copy(io.Discard, f)
			}
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		fmt.Println("done")
	}
	_ = anon
}

// TestMeterMemory lets a process allocate memory of several kinds, and compares the meter's figures with memory.stat.
func TestMeterMemory(t *testing.T) {
	n := newMeterNode(t)
	if n.mount.Memory == "" {
		t.Skip("no memory controller")
	}
	dir := n.add("a")
	m := n.meter()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := n.run(dir, self, "-test.run", "^TestMemoryHolder$")
	cmd.Env = append(cmd.Env, holdEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	do := func(what string) model.MemoryUsage {
		t.Helper()
		if _, err := io.WriteString(in, what+"\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != "done\n" {
			t.Fatalf("%s: %q, %v", what, line, err)
		}
		time.Sleep(2500 * time.Millisecond) // the kernel sums up the counters of the CPUs every 2 s
		load := n.measure(m, all)
		u, class := load.Pod("a").Memory, load.Classes[model.Burstable].Memory
		t.Logf("%-6s working set %4d, anon %4d, active %4d, inactive %4d MiB", strings.Fields(what)[0], u.WorkingSet>>20,
			u.Anon>>20, u.ActiveFile>>20, u.InactiveFile>>20)
		n.sameMemory(dir, u)
		if off := class.WorkingSet - u.WorkingSet; off < -2<<20 || off > 2<<20 {
			t.Errorf("the class has a working set of %d, its only pod one of %d", class.WorkingSet, u.WorkingSet)
		}
		if node := load.Node.Memory; node.At == 0 || node.WorkingSet < u.WorkingSet/2 || load.Memory < node.WorkingSet ||
			load.Watermark <= 0 || load.Watermark > load.Memory/4 {
			t.Errorf("the node: %+v of %d, watermark %d", node, load.Memory, load.Watermark)
		}
		return u
	}
	start := do("nothing")
	near := func(what string, got, mib int64) {
		t.Helper()
		if off := got - mib<<20; off < -4<<20 || off > 4<<20 {
			t.Errorf("%s is %d MiB, want %d", what, got>>20, mib)
		}
	}
	anon := do("anon")
	near("anonymous memory of 64 MiB", anon.Anon-start.Anon, 64)
	near("its working set", anon.WorkingSet-start.WorkingSet, 64)
	if file := filepath.Join(t.TempDir(), "file"); host.InMemory(filepath.Dir(file)) {
		t.Log("no disk to write a file to")
	} else {
		written := do("write " + file)
		near("the cache of a file that was written",
			written.InactiveFile+written.ActiveFile-anon.InactiveFile-anon.ActiveFile, 64)
		do("read " + file)
		read := do("read " + file)
		near("the same when it was read", read.InactiveFile+read.ActiveFile-anon.InactiveFile-anon.ActiveFile, 64)
		near("the working set, less what is active", read.WorkingSet-read.ActiveFile-anon.WorkingSet+anon.ActiveFile, 0)
	}
	if shm := memoryDir(t); !host.InMemory(shm) {
		t.Log("no tmpfs")
	} else {
		before := do("nothing")
		tmpfs := do("write " + filepath.Join(shm, "file"))
		near("a file in tmpfs, in the working set", tmpfs.WorkingSet-before.WorkingSet, 64)
		near("the same, in anon and active file", tmpfs.Anon+tmpfs.ActiveFile-before.Anon-before.ActiveFile, 0)
	}
}

// sameMemory compares a pod's memory with the files.
func (n *meterNode) sameMemory(dir string, u model.MemoryUsage) {
	n.t.Helper()
	read := func(s cgroup.Stat) string {
		content, err := os.ReadFile(filepath.Join(n.mount.Memory, dir, cgroup.StatFile(n.mount.Version, s)))
		if err != nil {
			n.t.Fatal(err)
		}
		return string(content)
	}
	var used int64
	if _, err := fmt.Sscan(read(cgroup.MemoryUsage), &used); err != nil {
		n.t.Fatal(err)
	}
	stat, want := "\n"+read(cgroup.MemoryDetails), model.MemoryUsage{At: u.At}
	names := []string{"anon", "active_file", "inactive_file"}
	if n.mount.Version == cgroup.V1 {
		names = []string{"total_rss", "total_active_file", "total_inactive_file"}
	}
	for i, of := range []*int64{&want.Anon, &want.ActiveFile, &want.InactiveFile} {
		_, value, _ := strings.Cut(stat, "\n"+names[i]+" ")
		if _, err := fmt.Sscan(value, of); err != nil {
			n.t.Fatal(err)
		}
	}
	want.WorkingSet = max(used-want.InactiveFile, 0)
	for i, off := range []int64{want.Anon - u.Anon, want.ActiveFile - u.ActiveFile, want.InactiveFile - u.InactiveFile,
		want.WorkingSet - u.WorkingSet} {
		if off < -1<<20 || off > 1<<20 {
			n.t.Errorf("%+v, another reader measures %+v (field %d)", u, want, i)
		}
	}
}
