package experiment

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/model"
)

// trials is a run on two CPUs in which the server's CPU was its own at last.
func trials() []trial {
	made := func(mode string, latency float64, took time.Duration) trial {
		t := trial{mode: mode, rate: 300, answers: 300, took: took, noticed: 700 * time.Millisecond}
		t.switches = switches{voluntary: 200, involuntary: 10 * latency, migrations: 0.5}
		for i := range 1000 {
			t.latency = append(t.latency, latency*float64(i+1)/1000)
			t.late = append(t.late, 0.05)
		}
		t.window = window{length: 10 * time.Second, busy: 2, used: map[string]time.Duration{"server": 3 * time.Second, "batch": 17 * time.Second}}
		return t
	}
	all := []trial{made("alone", 2, 0), made("none", 8, 0), made("share", 9, 3*time.Millisecond), made("exclusive", 2.5, 5*time.Millisecond)}
	delete(all[0].window.used, "batch")
	all[0].window.busy = 0.31
	all[3].window.used["batch"], all[3].window.busy = 10*time.Second, 1.3
	return all
}

func TestTrials(t *testing.T) {
	var r Result
	report(&r, trials())
	for key, want := range map[string]float64{
		"alone_p99_ms": 1.98, "none_p50_ms": 4, "none_p99_ms": 7.92, "share_p99_ms": 8.91, "exclusive_p99_ms": 2.475, "exclusive_p999_ms": 2.498,
		"none_answers_per_second": 300, "none_context_switches_per_second": 280, "none_involuntary_context_switches_per_second": 80,
		"exclusive_migrations_per_second": 0.5, "none_cpu_ms_per_request": 1, "exclusive_batch_cpus": 1, "none_batch_cpus": 1.7,
		"alone_outsiders_cpus": 0.01, "exclusive_intruders": 0, "switch_max_ms": 5, "requests": 1000, "exclusive_late_p99_ms": 0.05,
	} {
		if got, found := r.Metrics[key]; !found || math.Abs(got-want) > 0.002 {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	if got := r.Headline.String(); got != "p99 2.48 ms exclusive, 7.92 ms none (goal: exclusive is not slower, and no other pod was seen on its CPU; met)" {
		t.Error(got)
	}
	if svg := chart.Standalone(r.Chart); !strings.Contains(svg, "7.92 ms") || !strings.Contains(svg, "alone 1.98 ms") {
		t.Error(svg)
	}
	if notes := strings.Join(r.Notes, "\n"); strings.Contains(notes, "partly its own") || strings.Contains(notes, "Outside of") || !strings.Contains(notes, "3.00 and 5.00 ms later") {
		t.Errorf("%s", notes)
	}
}

// What makes the figures doubtful is said.
func TestTrialsDoubts(t *testing.T) {
	var r Result
	all := trials()
	for i := range all[2].late {
		all[2].late[i] = 1.2
	}
	all[3].window.busy = 2
	all[3].intruders = 1
	report(&r, all)
	notes := strings.Join(r.Notes, "\n")
	if !strings.Contains(notes, "late by more than 1 ms, p99, in mode share:") || !strings.Contains(notes, "used 0.70 CPUs (exclusive)") {
		t.Error(notes)
	}
	if r.Headline.Met {
		t.Error("met, with somebody else on its CPU")
	}
	all = trials()
	all[3].latency = all[2].latency
	if report(&r, all); r.Headline.Met {
		t.Error("met, though slower")
	}
}

func TestCount(t *testing.T) {
	at := func(due, sent, ready float64) asked {
		d := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		return asked{due: d(due), sent: d(sent), ready: d(ready)}
	}
	var got trial
	// The first counts for nothing, the last was answered after the end.
	all := []asked{at(0.5, 0.9, 0.95), at(1.5, 1.51, 1.6), at(2, 2, 2.02), at(2.9, 2.9, 3.2)}
	if err := got.count(all, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.latency) != "[20 100 300]" || fmt.Sprint(got.late) != "[0 0 10]" || got.answers != 1 {
		t.Errorf("%+v", got)
	}
	all[2].ready = 0
	if err := new(trial).count(all, 2*time.Second); err == nil || !strings.Contains(err.Error(), "1 of 3") {
		t.Errorf("one without an answer: %v", err)
	}
}

// A client asks a server that answers at once.
func TestAsk(t *testing.T) {
	dir := t.TempDir()
	var files [2]*os.File
	for i, name := range []string{requestsFile, answersFile} {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	go func() {
		buf := make([]byte, 3) // "17\n"
		for {
			if _, err := files[0].Read(buf); err != nil || string(buf) != "17\n" {
				return
			}
			if _, err := files[1].Write([]byte("\n")); err != nil {
				return
			}
		}
	}()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	var out strings.Builder
	done := make(chan error, 1)
	go func() {
		done <- ask(question{dir: dir, cpu: cpu, line: "17", rates: course{500}, length: 200 * time.Millisecond, seed: 1}, &out)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	scheduled, all, err := parseAsked(out.String())
	if err != nil || len(all) != len(course{500}.schedule(0, 200*time.Millisecond, 1)) || scheduled != "normal" {
		t.Fatalf("%d requests, scheduled %q, %v", len(all), scheduled, err)
	}
	for _, a := range all {
		if a.late() < 0 || a.ready < a.sent || a.latency() <= 0 {
			t.Errorf("%+v", a)
		}
	}
	if _, _, err := parseAsked("normal\n1 2 3 false 0 0 0\n1 x 3 false 0 0 0\n"); err == nil {
		t.Error("nonsense was understood")
	}
}

func TestSwitches(t *testing.T) {
	got, err := readSwitches(os.Getpid())
	if err != nil || got.voluntary+got.involuntary == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := readSwitches(1 << 30); err == nil {
		t.Error("of a process that is not there")
	}
	if n, err := number("a:\t7\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n", "nonvoluntary_ctxt_switches"); n != 3 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	if n, err := number("se.nr_migrations                             :                    5\n", "se.nr_migrations"); n != 5 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := number("a: 1\n", "b"); err == nil {
		t.Error("what is not there was found")
	}
	per := switches{40, 20, 10}.since(switches{20, 10, 0}, 10*time.Second)
	if per != (switches{2, 1, 1}) {
		t.Errorf("%+v", per)
	}
}

func TestParsePlace(t *testing.T) {
	const status = "Name:\tsh\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\nMems_allowed_list:\t0\n"
	stat := "7 (a) b (c) R 1" + strings.Repeat(" 0", 34) + " 1 0 0"
	got, err := parsePlace(status, stat)
	if err != nil || got.allowed != model.CPUs(0, 1) || got.last != model.CPUs(1) || !got.running {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][2]string{{status, "7 (sh) S 1 2"}, {"Cpus_allowed_list:\tx\n", stat}, {status, "7 (sh) S" + strings.Repeat(" x", 40)}} {
		if _, err := parsePlace(bad[0], bad[1]); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

func TestHeard(t *testing.T) {
	k := kubelet{manifests: t.TempDir()}
	p := &pod{name: "server", qos: model.Guaranteed, requestMilli: 1000, cpus: model.CPUShare}
	if err := k.announce(p); err != nil {
		t.Fatal(err)
	}
	read, stop, err := k.heard(p)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// Neither to list them nor to write it anew is to read it.
	if _, err := os.ReadDir(k.manifests); err != nil {
		t.Fatal(err)
	}
	if err := k.announce(p); err != nil {
		t.Fatal(err)
	}
	select {
	case <-read:
		t.Fatal("before anybody read it")
	case <-time.After(50 * time.Millisecond):
	}
	before := time.Now()
	if _, err := os.ReadFile(filepath.Join(k.manifests, "server.yaml")); err != nil {
		t.Fatal(err)
	}
	select {
	case at := <-read:
		if at.Before(before) {
			t.Errorf("%v before it was read", before.Sub(at))
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nobody was heard to read it")
	}
	broken := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(broken[unix.SizeofInotifyEvent-4:], 100)
	if opened(broken, "server.yaml") {
		t.Error("an event without the name it announces")
	}
}
