package e2e_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// allOn is a policy with every feature on.
const allOn = `policy={"mode": "Enforce", "priority": -1000, ` + allowAll + `,
	"cpu": {"method": "Static", "ratio": "50%", "suppression": "Arithmetic", "batchClass": "Idle"},
	"memory": {"method": "Static", "ratio": "30%"},
	"protect": {"burst": true, "memory": true, "interference": true, "eviction": {}}}`

// future is the file that the next version of the agent owns in the cgroup of a pod (test/bed/cmd/next).
func (n *node) future(dir string) string {
	if *on == "vm" {
		return n.Path + "/" + dir + "/memory.oom.group"
	}
	return n.Path + "/" + dir + "/notify_on_release"
}

// TestNodeFarewell upgrades Waterline to a version that owns one more file, goes back, and uninstalls, while pods run
// whose files it changed. The agents can write to the directory of pods only. The older version keeps what the newer
// one has to restore. In the end, every file of these pods and of the classes is as it was before the installation, and
// the agent's directory is empty.
func TestNodeFarewell(t *testing.T) {
	oneNode(t, "seven installations take minutes there, and level 3 restores the files of cgroup v2")
	var n *node
	t.Run("Before", func(t *testing.T) { n = install(t, "--set", "policy.mode=Observe") }) // where are the cgroups?
	n.t = t
	kubectl(t, "delete", "nodereports", "--all") // of agents that are gone for good, as on a node that left
	a := n.run("a", "", "requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 1, memory: 32Mi}", false)
	// No scheduler would bind a batch pod to a node that sells nothing.
	apply(t, strings.Replace(n.batch("b", false, 500, 64<<20), "nodeSelector: {kubernetes.io/hostname: "+n.name+"}",
		"nodeName: "+n.name, 1))
	kubectl(t, "wait", "--for=condition=Ready", "pod/b", ready)
	n.run("c", "", "requests: {cpu: 1, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}", false)
	dirs := []string{n.layout.Root, n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort)}
	for _, name := range []string{"a", "b", "c"} {
		container, _ := n.container(name)
		dirs = append(dirs, n.dir(name), container)
	}
	before := n.files(dirs)
	t.Logf("%d files", len(before))

	changed := func() {
		n.expect(t, a, model.Shares, 512)
		n.expect(t, a, model.Quota, model.Unlimited)
		n.limited(n.dir("b"))
		n.expect(t, n.dir("b"), model.Idle, 1)
		if *on == "vm" {
			n.expect(t, a, model.MemoryLow, 16<<20)
		}
		n.sold(false, "the node sells", func(is int64) bool { return is > 0 })
		eventually(t, "pod c has CPUs", func() (bool, string) {
			out := kubectl(t, "get", "pod", "c", "-o",
				`jsonpath={.status.conditions[?(@.type=="waterline.io/CPUSet")].status}`)
			return out == "True", out
		})
	}
	reports := func(what string, right func(unrestored int64) bool) {
		t.Helper()
		eventually(t, what, func() (bool, string) {
			r := object[v1alpha1.NodeReport](t, "nodereport", n.name).Status
			return r.Mode == "Disabled" && right(r.Unrestored), fmt.Sprintf("%+v", r)
		})
	}
	holds := func(want string) func() (bool, string) {
		return func() (bool, string) {
			content, err := n.readFile(n.future(a))
			return strings.TrimSpace(string(content)) == want, fmt.Sprintf("%s %v", content, err)
		}
	}
	version := func(tag, mode string) {
		t.Helper()
		// The directory of pods is that of this node only.
		install(t, "--set-json", allOn, "--set-json", `agent.nodeSelector={"kubernetes.io/hostname":"`+n.name+`"}`,
			"--set", fmt.Sprintf("image.tag=%s,policy.mode=%s,paths.kubepods=%s,paths.cgroupVersion=%d", tag, mode,
				n.layout.Root, n.Version))
	}

	t.Log("this version, with every feature on")
	version("dev", "Enforce")
	kubectl(t, "annotate", "pod", "a", "waterline.io/cpu-share=512", "waterline.io/cpu-quota=unlimited")
	kubectl(t, "annotate", "pod", "c", "waterline.io/cpu-manager=share")
	changed()

	t.Log("the next version owns one more file")
	version("next", "Enforce")
	eventually(t, "the next version's file", holds("1"))
	changed()

	t.Log("this version again: it goes on with its own files, and leaves that one as it is")
	version("dev", "Enforce")
	changed()
	if ok, is := holds("1")(); !ok {
		t.Errorf("after the downgrade the next version's file is %s", is)
	}
	version("dev", "Disabled")
	n.expect(t, a, model.Shares, model.MilliCPUToShares(100))
	reports("it reports the next version's files as not restored", func(left int64) bool { return left == 3 })

	t.Log("the next version restores it")
	version("next", "Disabled")
	reports("everything is restored", func(left int64) bool { return left == 0 })
	eventually(t, "the next version's file as it was", holds("0"))

	version("dev", "Disabled") // the next version must not run under a policy that enforces again
	version("dev", "Enforce")
	changed()
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := tryKubectl("logs", "-n", "waterline-system", "job/waterline-uninstall")
			t.Logf("the log of the uninstall Job: %s", out)
		}
	})
	t.Log(helm(t, "uninstall", "waterline", "--namespace", "waterline-system", "--wait", "--timeout", "4m"))
	n.restored(dirs, before)
	n.sold(false, "the node sells nothing", func(is int64) bool { return is == 0 })
	eventually(t, "the run directory is empty", func() (bool, string) {
		names, err := n.machine.run("ls", "-A", n.runDir())
		return err == nil && strings.TrimSpace(names) == "", fmt.Sprint(names, err)
	})
}

// restored waits until the files of some cgroups are as they were.
func (n *node) restored(dirs []string, before map[string]string) {
	n.t.Helper()
	eventually(n.t, "every file is as before", func() (bool, string) {
		now, wrong := n.files(dirs), []string{}
		for file, was := range before {
			// What was written once into a list of v2 stays a list, and is all CPUs then.
			if is := now[file]; is != was && !(path.Base(file) == "cpuset.cpus" && was == "") {
				wrong = append(wrong, fmt.Sprintf("%s is %q, was %q", file, is, was))
			}
		}
		slices.Sort(wrong)
		return len(wrong) == 0, strings.Join(wrong, "\n")
	})
}

// files returns the content of every file of some cgroups that can be written, in all hierarchies. Lists of tasks and
// counters that can be reset are left out.
func (n *node) files(dirs []string) map[string]string {
	n.t.Helper()
	// Without further processes: an emulated machine takes a while for each.
	const script = `for dir; do for root in /sys/fs/cgroup /sys/fs/cgroup/*; do
		[ -L "$root" ] || [ ! -d "$root/$dir" ] ||
		find "$root/$dir" -maxdepth 1 -type f -perm -600 ! -name '*.procs' ! -name '*.threads' ! -name tasks \
			! -name '*usage*' ! -name '*failcnt' ! -name '*.pressure' ! -name '*.peak' -exec sh -c \
			'for f; do all=; while read -r l; do all="$all$l "; done <"$f"; echo "$f=$all"; done' - {} +
	done; done`
	out, err := n.machine.run(append([]string{"sh", "-c", script, "-"}, dirs...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(out) {
		file, content, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found {
			n.t.Fatalf("%q", line)
		}
		all[file] = strings.TrimSpace(content)
	}
	return all
}
