// Package host observes the node it runs on. It finds the cgroup hierarchy ([FindMount], [FindKubepods]), follows the
// cgroups of pods ([Tree]), reports changes in them ([Watcher]), measures resource use ([Meter]) and reads the CPU
// topology ([ReadTopology]). It only reads; it never writes to the kernel.
//
// Its parsers of procfs files stand in for github.com/prometheus/procfs because the meter reads once a second without
// allocating: it keeps files open and parses only the needed fields from a reused buffer.
//
// Its inotify watcher stands in for github.com/fsnotify/fsnotify because it selects the event types that cgroup files
// produce, coalesces the events of a batch by file, and replaces the watch of a cgroup that was removed and made again.
package host
