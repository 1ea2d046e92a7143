package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestWaitsBusyPods checks that no pod is left out on a node that is full of busy pods: each is seen soon, and then
// read each second, though their tasks are more than the files that may be open.
func TestWaitsBusyPods(t *testing.T) {
	for _, c := range []struct {
		pods, limit int
		tasks       int // sampled of each pod
	}{{110, mostOpen, 16}, {250, mostOpen, 8}, {250, 64, 1}} {
		t.Run(fmt.Sprintf("%d pods, %d files", c.pods, c.limit), func(t *testing.T) {
			var uids []string
			for i := range c.pods {
				uids = append(uids, fmt.Sprintf("pod-%03d", i))
			}
			w := newWaits(t, uids...)
			w.w.limit = c.limit
			life := int64(0)
			run := func() { // all tasks have one file
				life++
				w.file(filepath.Join(w.proc, "schedstat"), fmt.Sprintf("%d 1000000 7\n", life*1e6))
			}
			run()
			for i, uid := range uids {
				w.file(filepath.Join(w.proc, fmt.Sprint(10000+i), "cgroup"), "0::/"+w.pods[uid].Dir+"\n")
				for task := range tasksOfPod + 2 {
					dir := filepath.Join(w.proc, fmt.Sprint(10000+i), "task", fmt.Sprint(10000+100*i+task))
					err := os.MkdirAll(dir, 0o755)
					if err == nil {
						err = os.Link(filepath.Join(w.proc, "schedstat"), filepath.Join(dir, "schedstat"))
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 40 {
				w.sample(tenth, uids[0])
			}
			for _, p := range w.w.Append(nil) {
				if p.At == 0 {
					t.Fatalf("%s was not seen within four seconds", p.UID)
				}
			}
			for range 150 { // until each pod has all of its share
				w.sample(tenth, uids[0])
			}
			oldest := time.Duration(0)
			for s := range 60 {
				if s%3 == 0 {
					run() // each task runs 1 ms in 300 ms
				}
				w.sample(tenth, uids[0])
				if s < 30 {
					continue
				}
				for _, p := range w.w.Append(nil) {
					oldest = max(oldest, w.boot-p.At)
				}
			}
			if most := 900 * time.Millisecond; oldest > most {
				t.Errorf("the oldest sample is of %s ago, want %s", oldest, most)
			}
			if most := max(c.limit, c.pods); w.w.open > most {
				t.Errorf("%d files are open, want %d", w.w.open, most)
			}
			for i := range w.w.pods {
				if n := len(w.w.pods[i].tasks); n != c.tasks {
					t.Fatalf("%d tasks of %s are sampled, want %d", n, uids[i], c.tasks)
				}
			}
			if got, want := w.w.Sampled(), (model.SampledPods{Some: c.pods}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// TestWaitsInPart checks a node with many pods of many tasks, of which few run: a sample reads few tasks of a pod:
// those that run in each of its samples, and the others in turns, so that one that begins to run is seen soon.
func TestWaitsInPart(t *testing.T) {
	const pods = 60
	var uids []string
	for i := range pods {
		uids = append(uids, fmt.Sprintf("pod-%03d", i))
	}
	w := newWaits(t, uids...)
	for i, uid := range uids {
		for task := range tasksOfPod {
			w.runs(uid, 1000+i, 100*(1000+i)+task, 1, 1)
		}
	}
	for range 150 {
		w.sample(tenth, uids[0])
	}
	pod, life := &w.w.pods[7], [2]int64{1, 1}
	ran := func(task int, milli int64) {
		life[task] += milli
		w.runs(uids[7], 1007, 100*1007+14*task, life[task], 1)
	}
	most, oldest := 0, time.Duration(0)
	begun, seen := 0, 0
	for n := range 150 {
		ran(0, 10)
		if n == 60 {
			ran(1, 1000)
			begun = n
		}
		sum, _, _ := w.sample(tenth, uids[7])
		reads := 0
		for i := range w.w.pods {
			for _, task := range w.w.pods[i].tasks {
				if task.read == w.boot {
					reads++
				}
			}
		}
		most = max(most, reads)
		if n >= 30 {
			oldest = max(oldest, w.boot-pod.sum.At)
		}
		if begun > 0 && seen == 0 && sum > 1000+10*50 {
			seen = n
		}
	}
	if bound := tasksRunning + 2*tasksAsleep; most > bound {
		t.Errorf("a sample read %d tasks, want %d", most, bound)
	}
	if oldest != 0 {
		t.Errorf("the pod that runs was read %s ago", oldest)
	}
	if sum, _, _ := w.sample(tenth, uids[7]); sum < 10*150+1000-30 {
		t.Errorf("its tasks ran for %d ms", sum)
	}
	if most := begun + 5; seen == 0 || seen > most {
		t.Errorf("a task that began to run in sample %d was seen in sample %d, want %d", begun, seen, most)
	}
}

// TestWaitsSettled checks that the tasks of a pod are listed less often while one of them runs and all had their turn,
// and that a task which was not read keeps its place.
func TestWaitsSettled(t *testing.T) {
	w := newWaits(t, "web")
	for task := range tasksOfPod + 2 {
		w.runs("web", 100, 1000+task, 1, 1)
	}
	p := &w.w.pods
	listings := func(samples int, runs bool) (n int) {
		life := int64(1)
		for range samples {
			if runs {
				life += 10
				w.runs("web", 100, (*p)[0].tasks[0].tid, life, 1)
			}
			var before time.Duration
			if len(*p) > 0 {
				before = (*p)[0].listed
			}
			if w.sample(tenth, "web"); (*p)[0].listed != before {
				n++
			}
		}
		return n
	}
	listings(200, false)
	if n := listings(400, false); n != 8 {
		t.Errorf("while no task runs, %d listings in 40 s, want 8", n)
	}
	listings(200, true)
	if n := listings(400, true); n < 2 || n > 4 {
		t.Errorf("while a task runs, %d listings in 40 s, want 2 to 4", n)
	}
	tids := func() (all []int) {
		for _, task := range (*p)[0].tasks {
			all = append(all, task.tid)
		}
		return all
	}
	w.boot += time.Minute
	w.w.listPod(&(*p)[0], w.boot)
	before := tids()
	w.w.listPod(&(*p)[0], w.boot)
	if after := tids(); !slices.Equal(before, after) {
		t.Errorf("tasks that were not read lost their places: %v, before %v", after, before)
	}
}

// TestWaitsMorePods checks that pods that begin get files of those that have many.
func TestWaitsMorePods(t *testing.T) {
	w := newWaits(t, "a", "b", "c", "d")
	w.w.limit = 20
	for i, uid := range []string{"a", "b", "c", "d"} {
		for task := range 12 {
			w.runs(uid, 100+i, 1000*(i+1)+task, 1, 1)
		}
	}
	all := w.marks
	w.marks = all[:1]
	for range 20 {
		w.sample(tenth, "a")
	}
	if got, want := w.w.Sampled(), (model.SampledPods{All: 1}); got != want || w.w.open != 12 {
		t.Errorf("one pod: %+v with %d files, want %+v with 12", got, w.w.open, want)
	}
	w.marks = all
	for range 80 {
		w.sample(tenth, "d")
	}
	if got, want := w.w.Sampled(), (model.SampledPods{Some: 4}); got != want || w.w.open != 20 {
		t.Errorf("four pods: %+v with %d files, want %+v with 20", got, w.w.open, want)
	}
}

// TestWaitsManyProcesses checks that the processes of one pod, however many, neither delay the samples of another pod
// nor hide one that begins, and that only some of them are remembered.
func TestWaitsManyProcesses(t *testing.T) {
	w := newWaits(t, "bomb", "new", "web")
	const bombs, most, looks = 3000, 1000, 256
	w.w.find.most = most
	w.runs("web", 100, 100, 1, 1)
	w.sample(tenth, "web")
	for i := range bombs {
		w.runs("bomb", 1000+i, 1000+i, 1, 1)
	}
	w.runs("new", 1000+bombs, 1000+bombs, 1, 1)
	known := len(w.w.find.known)
	life, seen := int64(1), 0
	for n := range 200 {
		life += 2
		w.runs("web", 100, 100, life, 1)
		if ran, _, age := w.sample(tenth, "web"); ran != life-1 || age != 0 {
			t.Fatalf("sample %d: the other pod ran for %d ms, %s ago; want %d, now", n, ran, age, life-1)
		}
		if more := len(w.w.find.known) - known; more > looks {
			t.Fatalf("sample %d: %d processes were looked at, want %d at most", n, more, looks)
		}
		known = len(w.w.find.known)
		if s := model.FindWait(w.w.Append(nil), "new"); s.At != 0 && seen == 0 {
			seen = n + 1
		}
	}
	// A search begins after five seconds, and looks at all that is new.
	if most := 50 + bombs/looks + 2; seen == 0 || seen > most {
		t.Errorf("the pod that began was seen in sample %d, want %d", seen, most)
	}
	if most := most + 3*fewProcesses; known > most {
		t.Errorf("%d processes are known, want %d at most", known, most)
	}
	if pids, _ := w.w.find.of("bomb"); len(pids) < most/2 || len(pids) > most {
		t.Errorf("%d processes of the pod are known", len(pids))
	}
	if n := len(w.w.pods[0].tasks); n != tasksOfPod {
		t.Errorf("%d of its tasks are sampled", n)
	}
}

// TestWaitsTurns checks that all tasks of a pod have their turn, whether they are threads of one process or processes,
// that one listing of them is bounded, and that those that run keep their place.
func TestWaitsTurns(t *testing.T) {
	const tasks = 1024
	for _, threads := range []bool{true, false} {
		w := newWaits(t, "web")
		pid := func(task int) int {
			if threads {
				return 100
			}
			return 10000 + task
		}
		for task := range tasks {
			w.runs("web", pid(task), 10000+task, 1, 1)
		}
		for len(w.w.find.known) == 0 || w.w.find.dir.isOpen {
			w.sample(tenth, "web")
		}
		const busy = tasks - 5
		seen, most := map[int]bool{}, 0
		life := int64(1)
		p := &w.w.pods[0]
		for range 3 * tasks / (tasksOfPod - 1) {
			w.boot += relist
			most = max(most, w.w.listPod(p, w.boot))
			for i := range p.tasks {
				seen[p.tasks[i].tid] = true
			}
			life++
			w.runs("web", pid(busy), 10000+busy, life, 1)
			w.w.readPod(p, w.boot, tasksOfPod)
		}
		if len(seen) != tasks {
			t.Errorf("threads %v: %d of %d tasks had their turn", threads, len(seen), tasks)
		}
		if !slices.ContainsFunc(p.tasks, func(t waitingTask) bool { return t.tid == 10000+busy }) {
			t.Errorf("threads %v: the task that runs has lost its place", threads)
		}
		if bound := 16 + 16 + 256/8; most > bound {
			t.Errorf("threads %v: a listing cost %d, want %d", threads, most, bound)
		}
	}
}

// TestWaitsShortTasks checks pods whose tasks all end before they are read: they delay the listing of no other pod, and
// count as seen only where their pressure cannot be.
func TestWaitsShortTasks(t *testing.T) {
	for _, only := range []bool{true, false} {
		const short = 40
		var uids []string
		for i := range short {
			uids = append(uids, fmt.Sprintf("a-%02d", i))
		}
		uids = append(uids, "web")
		w := newWaits(t, uids...)
		w.w.only = only
		for i, uid := range uids {
			w.runs(uid, 100+i, 100+i, 1, 1)
		}
		next := 1000
		w.sample(tenth, "web")
		w.runs("web", 100+short, 9999, 1, 1)
		for range 120 {
			for i, uid := range uids[:short] {
				if len(w.w.pods[i].tasks) == 0 {
					continue
				}
				tid := w.w.pods[i].tasks[0].tid
				w.exits(tid, tid)
				if err := os.RemoveAll(filepath.Join(w.proc, fmt.Sprint(tid))); err != nil {
					t.Fatal(err)
				}
				next++
				w.runs(uid, next, next, 1, 1)
			}
			w.sample(tenth, "web")
		}
		if n := len(w.w.pods[short].tasks); n != 2 {
			t.Errorf("only %v: %d tasks of the other pod are sampled, want 2", only, n)
		}
		for _, p := range w.w.Append(nil)[:short] {
			if age := w.boot - p.At; (age < 2*relist) != only {
				t.Errorf("only %v: %s counts as seen %s ago", only, p.UID, age)
			}
		}
	}
}

// TestProcessesReused checks a process whose number another process gets, in the same pod, in another one and in none.
func TestProcessesReused(t *testing.T) {
	n := newFakeNode(t, cgroup.V2, "a", "b")
	f := processes{procReader: procReader{proc: n.proc}, layout: n.layout, most: mostKnown}
	is := func(uid string) {
		text := "0::/system.slice\n"
		if uid != "" {
			text = "0::/" + n.pods[uid].Dir + "\n"
		}
		n.file(filepath.Join(n.proc, "7", "cgroup"), text)
	}
	is("a")
	if ended, err := f.search(time.Second, 1); !ended || err != nil {
		t.Fatal(ended, err)
	}
	inode := f.known[7].inode
	for i, c := range []struct {
		uid  string
		want [2]int // processes of a and b
	}{{"a", [2]int{1, 0}}, {"b", [2]int{0, 1}}, {"", [2]int{0, 0}}, {"b", [2]int{0, 1}}, {"a", [2]int{1, 0}}} {
		is(c.uid)
		f.number++
		f.note(time.Duration(i)*time.Hour, 7, inode+uint32(i)+1)
		f.removeEnded()
		a, _ := f.of("a")
		b, _ := f.of("b")
		if got := [2]int{len(a), len(b)}; got != c.want {
			t.Errorf("%d: now of %q: %v, want %v", i, c.uid, got, c.want)
		}
	}
	f.number++
	if f.removeEnded(); len(f.known)+len(f.numbers) > 0 || f.pods[1].uid+f.pods[2].uid != "" {
		t.Errorf("after it ended: %v, %v, %+v", f.known, f.numbers, f.pods)
	}
}

// TestNumbers checks that a listing can go on where another one ended, in a directory and in the kernel's /proc.
func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	for i := range 500 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"self", "1x"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "1000"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, DefaultProc} {
		var d numbers
		name := append([]byte(path), 0)
		seen, twice := map[int]bool{}, 0
		for at, more := int64(0), true; more; at = d.at {
			if err := d.open(&name[0], at); err != nil {
				t.Fatal(err)
			}
			for range 7 {
				n, _, ok, err := d.next()
				if err != nil {
					t.Fatal(err)
				}
				if more = ok; !ok {
					break
				}
				if seen[n] {
					twice++
				}
				seen[n] = true
			}
			d.close()
		}
		if twice > 0 || path == dir && len(seen) != 500 || path != dir && !seen[os.Getpid()] {
			t.Errorf("%s: %d numbers, %d of them twice", path, len(seen), twice)
		}
	}
}
