package yarn

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Killed is a container that did not end by itself: it was killed, or failed, or never started, while its application
// went on and had not asked for that.
type Killed struct {
	Container, Node string    // Node is the name of the NodeManager's log; empty if it never started
	Began           time.Time // when its start was logged; zero: it never started
	At              time.Time // when its end was logged
	How             string    // the log's word for it
}

// Ledger is what became of the containers of a cluster, by the logs of its daemons. A NodeManager notes the start and
// the end of each container in its audit log. A container with a start and without an end died with its NodeManager.
type Ledger struct {
	Started int // containers
	Killed  []Killed
	// Placed has the names of the NodeManagers' logs by container.
	Placed map[string]string
}

// Ledger reads the logs of the cluster's daemons.
func (b *Bed) Ledger() (Ledger, error) { return ReadLedger(b.logs) }

// ReadLedger reads the logs of a cluster's daemons in a directory, those of ResourceManagers as rm1.log and rm2.log.
// Containers that run still count as killed, so applications should have ended.
func ReadLedger(dir string) (Ledger, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return Ledger{}, err
	}
	a := accounts{apps: map[string]time.Time{}, dropped: map[string]Killed{}, all: map[string]*account{}}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return Ledger{}, fmt.Errorf("reading the logs of daemons: %w", err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".log")
		if name == "rm1" || name == "rm2" {
			a.readRM(string(content))
		} else {
			a.readNode(name, string(content))
		}
	}
	return a.ledger(), nil
}

// accounts are what logs say.
type accounts struct {
	apps    map[string]time.Time // when they ended
	dropped map[string]Killed    // containers that the ResourceManager gave up while their applications went on
	all     map[string]*account
}

// account is what a NodeManager's log says of a container.
type account struct {
	node    string
	asked   time.Time // for its end; zero: nobody did
	outcome string
	began   time.Time
	at      time.Time // of the outcome
}

const (
	succeeded = "Succeeded"
	vanished  = "gone with its NodeManager"
)

var (
	appEnds   = regexp.MustCompile(`: (application_\d+_\d+) State change from \w+ to (?:FINAL_SAVING|KILLING|FINISHED|FAILED|KILLED) `)
	dropping  = regexp.MustCompile(`: (container_\w+) Container Transitioned from (?:ALLOCATED|ACQUIRED|RUNNING) to (KILLED|EXPIRED)`)
	audited   = regexp.MustCompile(`\tOPERATION=([^\t]+)\t.*RESULT=SUCCESS\b.*CONTAINERID=(container_\w+)`)
	failed    = regexp.MustCompile(`\tOPERATION=(Container Finished - Failed)\t.*CONTAINERID=(container_\w+)`)
	beginning = regexp.MustCompile(`nodemanager\.NodeManager: STARTUP_MSG`)
)

// when returns the time at the beginning of a line.
func when(line string) (time.Time, bool) {
	const layout = "2006-01-02 15:04:05,000"
	if len(line) < len(layout) {
		return time.Time{}, false
	}
	at, err := time.ParseInLocation(layout, line[:len(layout)], time.Local)
	return at, err == nil
}

func (a *accounts) readRM(log string) {
	for line := range strings.Lines(log) {
		at, dated := when(line)
		if !dated {
			continue
		}
		if m := appEnds.FindStringSubmatch(line); m != nil {
			if before, found := a.apps[m[1]]; !found || at.Before(before) {
				a.apps[m[1]] = at
			}
		}
		if m := dropping.FindStringSubmatch(line); m != nil {
			// An application whose master is killed ends in the same millisecond, by a later line.
			if _, ended := a.apps[appOf(m[1])]; !ended {
				a.dropped[m[1]] = Killed{Container: m[1], At: at, How: m[2]}
			}
		}
	}
}

func (a *accounts) readNode(name, log string) {
	var last time.Time
	running := map[string]*account{}
	vanish := func() {
		for _, c := range running {
			c.outcome, c.at = vanished, last
		}
		clear(running)
	}
	for line := range strings.Lines(log) {
		if beginning.MatchString(line) {
			vanish()
		}
		if at, dated := when(line); dated {
			last = at
		}
		m := audited.FindStringSubmatch(line)
		if m == nil {
			m = failed.FindStringSubmatch(line)
		}
		if m == nil {
			continue
		}
		id := m[2]
		switch c := running[id]; {
		case m[1] == "Start Container Request":
			running[id] = &account{node: name, began: last}
			a.all[id] = running[id]
		case c == nil:
		case m[1] == "Stop Container Request":
			c.asked = last
		case strings.HasPrefix(m[1], "Container Finished - "):
			c.outcome, c.at = strings.TrimPrefix(m[1], "Container Finished - "), last
			delete(running, id)
		}
	}
	vanish()
}

func (a *accounts) ledger() Ledger {
	l := Ledger{Started: len(a.all), Placed: map[string]string{}}
	for _, id := range slices.Sorted(maps.Keys(a.all)) {
		c := a.all[id]
		l.Placed[id] = c.node
		drop, dropped := a.dropped[id]
		// Applications ask, and the ResourceManager for the master of one that has ended: also of one that it killed.
		asked := !c.asked.IsZero() && !(dropped && drop.At.Before(c.asked))
		if c.outcome == succeeded || asked {
			continue
		}
		k := Killed{Container: id, Node: c.node, Began: c.began, At: c.at, How: c.outcome}
		if dropped && (c.outcome == vanished || drop.At.Before(k.At)) { // the log of one that was killed ends before
			k.At = drop.At
		}
		if ended, found := a.apps[appOf(id)]; dropped || !found || k.At.Before(ended) {
			l.Killed = append(l.Killed, k)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.dropped)) {
		if a.all[id] == nil {
			l.Killed = append(l.Killed, a.dropped[id])
		}
	}
	return l
}

// On returns how many containers of an application each NodeManager has had, by the name of its log.
func (l *Ledger) On(app string) map[string]int {
	on := map[string]int{}
	for id, node := range l.Placed {
		if appOf(id) == app {
			on[node]++
		}
	}
	return on
}

// appOf returns the application of a container, whose id is container_[eEPOCH_]CLUSTER_APPLICATION_ATTEMPT_NUMBER.
func appOf(container string) string {
	parts := strings.Split(container, "_")
	if len(parts) < 4 {
		return ""
	}
	n := len(parts)
	return "application_" + parts[n-4] + "_" + parts[n-3]
}
