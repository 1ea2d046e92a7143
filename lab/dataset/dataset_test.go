package dataset

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/test/fixture"
)

func read(t testing.TB, set, content string) ([]Machine, error) {
	t.Helper()
	d, found := Find(set)
	if !found {
		t.Fatalf("no data set %s", set)
	}
	r, err := newRows("x.csv", strings.NewReader(content))
	if err != nil {
		return nil, err
	}
	return d.file(r)
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, set, content, want string }{
		{"empty", "alibaba2018", "", "trace x.csv is empty: its first line must name the columns"},
		{"milliseconds", "bitbrains", "vm,time_s,cap_mhz,cpu_mhz\n1,1375308176000,1,1\n",
			"not a time in whole seconds; divide milliseconds by 1000"},
		{"columns", "nab", "time,value\n", "The first line must name the columns timestamp, value"},
		{"column", "alibaba2018", "machine_id,time_s\n",
			`trace x.csv has no column "cpu_util_percent"; its first line is "machine_id,time_s"`},
		{"cut off", "alibaba2018", "machine_id,time_s,cpu_util_percent\nm_1,5\n",
			`trace x.csv, line 2: 2 columns, but "cpu_util_percent" is column 3`},
		{"no number", "alibaba2018", "machine_id,time_s,cpu_util_percent\nm_1,5,10\n\nm_1,300,1O\n",
			`trace x.csv, line 4: cpu_util_percent is "1O", not a number that is not negative`},
		{"NaN", "cloudcluster", "minute_epoch,cpu_used_units\n5,NaN\n", `line 2: cpu_used_units is "NaN"`},
		{"infinite", "cloudcluster", "minute_epoch,cpu_used_units\n5,1e999\n", `line 2: cpu_used_units is "1e999"`},
		{"negative", "nab", "timestamp,value\n2014-02-14 14:30:00,-1\n", `line 2: value is "-1"`},
		{"no time", "nab", "timestamp,value\n14 Feb,1\n",
			`line 2: timestamp is "14 Feb", not a time such as 2006-01-02 15:04:05`},
		{"time", "bitbrains", "vm,time_s,cap_mhz,cpu_mhz\n1,1.5,1,1\n",
			`line 2: time_s is "1.5", not a time in whole seconds`},
		{"time too late", "bitbrains", "vm,time_s,cap_mhz,cpu_mhz\n1,9223372036854775807,1,1\n",
			"not a time in whole seconds"},
		{"VM", "bitbrains", "vm,time_s,cap_mhz,cpu_mhz\nx,1,1,1\n", `line 2: vm is "x", not the number of a VM`},
		{"nothing", "nab", "timestamp,value\n", "trace x.csv has no values"},
		{"no aggregate", "datacenter", "timestamp,mem\n", `no column "cpu_usage"`},
		{"long line", "nab", "timestamp,value\n" + strings.Repeat("x", maxLine+1), "after line 1"},
	} {
		if _, err := read(t, c.set, c.content); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestHosts checks how VMs make a host: a single VM that was not measured counts with its last value, two make a hole.
func TestHosts(t *testing.T) {
	var b strings.Builder
	b.WriteString("vm,time_s,cores,cap_mhz,cpu_mhz\n")
	for step := range 3 {
		for vm := range 12 { // the last two make no host
			switch {
			case vm == 3 && step == 1, vm == 4 && step == 2, vm == 5 && step == 2:
				continue
			}
			line := []string{itoa(vm + 1), itoa(step * trace.Step), "1", "100", itoa(10*step + vm)}
			if vm == 9 {
				line[4] = "500" // above what it can use
			}
			b.WriteString(strings.Join(line, ",") + "\r\n")
		}
	}
	machines, err := read(t, "bitbrains", b.String())
	if err != nil || len(machines) != 1 {
		t.Fatalf("%d hosts, %v", len(machines), err)
	}
	m := machines[0]
	if !slices.Equal(m.Times, []int64{0, 300}) || m.Limit() != 1000 || m.Name != "x/host0" {
		t.Errorf("%s: times %v, limit %g", m.Name, m.Times, m.Limit())
	}
	if want := []float64{36 + 100, 36 + 80 + 100}; !slices.Equal(m.Total(), want) {
		t.Errorf("%v, not %v: VM 4 counts with its last value in the second step", m.Total(), want)
	}
}

func itoa(n int) string {
	if n >= 10 {
		return itoa(n/10) + itoa(n%10)
	}
	return string(rune('0' + n))
}

// TestMachines checks which of Alibaba's machines are scored, and that values of a step are averaged.
func TestMachines(t *testing.T) {
	var b strings.Builder
	b.WriteString("machine_id,time_s,cpu_util_percent,mem\n")
	for step := range alibabaSteps {
		at := itoa(step*trace.Step) + ","
		b.WriteString("busy," + at + "40,1\nbusy," + itoa(step*trace.Step+60) + ",50,1\n")
		b.WriteString("idle," + at + "14,1\nunmeasured," + at + ",1\n")
		if step > 0 {
			b.WriteString("short," + at + "40,1\n")
		}
	}
	machines, err := read(t, "alibaba2018", b.String())
	if err != nil || len(machines) != 1 || machines[0].Name != "x/busy" {
		t.Fatalf("%v, %v", machines, err)
	}
	if v := machines[0].Total()[7]; v != 45 || machines[0].Limit() != 100 {
		t.Errorf("value %g of %g", v, machines[0].Limit())
	}
}

// TestEvery checks values of another step, and memory: where it was not measured the last value counts.
func TestEvery(t *testing.T) {
	var b strings.Builder
	b.WriteString("machine_id,time_s,cpu_util_percent,mem_util_percent\n")
	for step := range alibabaSteps {
		b.WriteString("m," + itoa(step*trace.Step) + ",40,90\nm," +
			itoa(step*trace.Step+60) + ",50,\nm," + itoa(step*trace.Step+90) + ",60,\n")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "x.csv")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	d, _ := Find("alibaba2018")
	machines, err := d.ReadEvery(file, 60)
	if err != nil || len(machines) != 1 {
		t.Fatalf("%d machines, %v", len(machines), err)
	}
	m := machines[0]
	if !slices.Equal(m.Times[:3], []int64{0, 60, 300}) || !slices.Equal(m.Total()[:3], []float64{40, 55, 40}) ||
		!slices.Equal(m.Memory[:3], []float64{90, 90, 90}) {
		t.Errorf("times %v, CPU %v, memory %v", m.Times[:3], m.Total()[:3], m.Memory[:3])
	}
}

// TestPlanetlab checks rows that are VMs, in files that are days.
func TestPlanetlab(t *testing.T) {
	d, _ := Find("planetlab")
	root := t.TempDir()
	file := func(name string, rows ...string) ([]Machine, error) {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return d.Read(path)
	}
	row := func(name, value string) string { return name + strings.Repeat(","+value, 288) }
	second, err := file("20110306.csv", row("a", "20"), row("c", "30"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := file("20110303_dev.csv", row("a", "10"), row("b", "20"))
	if err != nil {
		t.Fatal(err)
	}
	all := Join(slices.Concat(second, first))
	if len(all) != 3 || all[0].Name != "a" || all[2].Name != "c" {
		t.Fatalf("%d VMs: %+v", len(all), all)
	}
	a, begin := all[0], time.Date(2011, 3, 3, 0, 0, 0, 0, time.UTC).Unix()
	if len(a.Times) != 576 || a.Times[0] != begin || a.Times[288] != begin+3*86400 || a.Parts[0][287] != 10 ||
		a.Parts[0][288] != 20 || a.Limit() != 100 {
		t.Errorf("times %d, values %v", a.Times[286:290], a.Parts[0][286:290])
	}
	if g := a.Grids(); len(g) != 1 || len(g[0].Days) != 2 {
		t.Errorf("%d grids", len(g))
	}
	for _, c := range []struct{ name, row, want string }{
		{"x.csv", row("a", "1"), "x.csv must be named after its day, such as 20110303.csv"},
		{"20110303.csv", "a,1,2", "line 1: 3 columns, not a name and 288 values of five minutes"},
		{"20110303.csv", row("a", "x"), `line 1: value 1 is "x", not a number that is not negative`},
	} {
		if _, err := file(c.name, c.row); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}

// TestAggregates checks the three sources of whole clusters' use.
func TestAggregates(t *testing.T) {
	for _, c := range []struct {
		content string
		times   []int64
		values  []float64
		limit   float64
	}{
		{"cpu_util_percent,mem\n" + strings.Repeat("20,1\n", 10) + "40,1\n", []int64{0, 300}, []float64{20, 40}, 100},
		{"avg_cpu,avg_mem\n0.5,1\n0.25,1\n", []int64{0, 300}, []float64{0.5, 0.25}, 1},
		{"timestamp,cpu_usage,mem\n600,9,1\n1200,8,1\n", []int64{600, 1200}, []float64{9, 8}, 9},
	} {
		machines, err := read(t, "datacenter", c.content)
		if err != nil || len(machines) != 1 {
			t.Fatalf("%q: %v, %v", c.content, machines, err)
		}
		m := machines[0]
		if !slices.Equal(m.Times, c.times) || !slices.Equal(m.Total(), c.values) || m.Limit() != c.limit {
			t.Errorf("%q: %v, %v of %g", c.content, m.Times, m.Total(), m.Limit())
		}
	}
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	d, _ := Find("cloudcluster")
	if _, err := d.Files(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	dir := filepath.Join(root, d.Dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Files(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
	const content = "minute_epoch,cpu_used_units\n5,2\n6,4\n9,6\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(content))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"b.csv": content, "a.csv.gz": packed.String(), "LICENSE": "x",
		"c.csv.gz": "not packed"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := d.Files(root)
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	want := []Machine{{Name: "a", Times: []int64{300}, Parts: [][]float64{{4}}, Limits: []float64{4}}}
	got, err := d.Read(files[0])
	if err != nil {
		t.Error(err)
	}
	if d := fixture.Diff(want, got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", files[0], d)
	}
	if got, err := d.Read(files[1]); err != nil || got[0].Name != "b" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := d.Read(files[2]); err == nil || !strings.Contains(err.Error(), "unpacking trace "+files[2]) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "d.csv.gz"), packed.Bytes()[:packed.Len()-9], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(filepath.Join(dir, "d.csv.gz")); err == nil || !strings.Contains(err.Error(), "reading trace") {
		t.Errorf("cut off: %v", err)
	}
}

// TestUsable checks that single bad rows are skipped where that is asked for, and many are an error all the same.
func TestUsable(t *testing.T) {
	d, _ := Find("cloudcluster")
	file := filepath.Join(t.TempDir(), "x.csv")
	write := func(bad int) {
		var b strings.Builder
		b.WriteString("minute_epoch,cpu_used_units\n")
		for i := range 300 {
			if i%100 < bad {
				b.WriteString("5,unknown\n")
			} else {
				b.WriteString(strconv.Itoa(i) + ",2\n")
			}
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	if _, err := d.ReadEvery(file, 60); err == nil {
		t.Error("a bad row is no error")
	}
	machines, skipped, err := d.ReadUsable(file, 60)
	if err != nil || len(machines) != 1 || len(machines[0].Times) != 297 || skipped.Rows != 3 || skipped.Of != 300 ||
		!strings.Contains(skipped.First.Error(), "x.csv, line 2: cpu_used_units is \"unknown\"") {
		t.Errorf("%d machines, %+v, %v", len(machines), skipped, err)
	}
	write(2)
	const many = "6 of 300 rows cannot be used, which is more than one in a hundred; the first: trace"
	if _, _, err := d.ReadUsable(file, 60); err == nil || !strings.Contains(err.Error(), many) {
		t.Errorf("%v", err)
	}
}

// FuzzRead checks of any file that what is read can be scored: times rise, values are numbers, and parts are complete.
func FuzzRead(f *testing.F) {
	f.Add("alibaba2018", "machine_id,time_s,cpu_util_percent\nm_1,5,10\nm_1,,\n")
	f.Add(
		"bitbrains", "vm,time_s,cap_mhz,cpu_mhz\n"+
			"1,0,10,5\n2,0,10,5\n3,0,1,1\n4,0,1,1\n5,0,1,1\n6,0,1,1\n7,0,1,1\n8,0,1,1\n9,0,1,1\n10,0,1,1\n",
	)
	f.Add("cloudcluster", "minute_epoch,cpu_used_units\n28707789,14.400\n")
	f.Add("nab", "timestamp,value\n2014-02-14 14:30:00,0.132\n")
	f.Add("datacenter", "avg_cpu\n0.5\n")
	f.Fuzz(func(t *testing.T, set, content string) {
		if _, found := Find(set); !found {
			return
		}
		machines, err := read(t, set, content)
		if err != nil {
			if !strings.Contains(err.Error(), "x.csv") {
				t.Errorf("the file is not named: %v", err)
			}
			return
		}
		for _, m := range machines {
			if len(m.Parts) != len(m.Limits) {
				t.Fatalf("%d parts, %d limits", len(m.Parts), len(m.Limits))
			}
			for i := 1; i < len(m.Times); i++ {
				if m.Times[i] < m.Times[i-1]+trace.Step {
					t.Fatalf("times %d and %d", m.Times[i-1], m.Times[i])
				}
			}
			for p, part := range m.Parts {
				if len(part) != len(m.Times) {
					t.Fatalf("%d values at %d times", len(part), len(m.Times))
				}
				for _, v := range part {
					if math.IsNaN(v) || v < 0 || v > m.Limits[p] && set != "alibaba2018" && set != "datacenter" {
						t.Fatalf("value %g of %g", v, m.Limits[p])
					}
				}
			}
		}
	})
}
