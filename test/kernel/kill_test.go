package kernel_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// binary returns one of our programs, built.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("WATERLINE_BIN")
	if dir == "" {
		dir = "../../out/bin"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	return path
}

// process is an agent in a process of its own.
type process struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

func (n *node) launch(manifests, runDir string) *process {
	n.t.Helper()
	p := &process{}
	p.cmd = exec.Command(binary(n.t.(*testing.T), "waterline-agent"), "--pods", manifests, "--kubepods", n.layout.Root, "--run-dir", runDir, "--listen", "", "--local", "")
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// TestKill kills the agent at random instants while annotations change, and lets another writer write while it is dead. In
// the end every file must be right, and the undo record must have the newest value of the other writer for every file: no
// kill may lose one.
func TestKill(t *testing.T) {
	kills := 50
	if os.Getenv("WATERLINE_SOAK") != "" {
		kills = 1000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d kills, seed %d", kills, seed)
	r := rand.New(rand.NewPCG(seed, 1))
	n := newNode(t)
	manifests, runDir := t.TempDir(), t.TempDir()
	const pods = 8
	asks := map[string]int64{}            // pod → shares it asks for, 0 for none
	theirs := map[model.File]cgroup.Raw{} // the newest value that was not ours
	var files []model.File
	for i := range pods {
		uid := fmt.Sprintf("p%d", i)
		dir := n.pod(model.Burstable, uid, 100, "0123456789ab")
		n.set(dir, model.Quota, 200_000)
		n.set(dir+"/0123456789ab", model.Quota, 100_000)
		files = append(files, model.File{Dir: dir, Knob: model.Shares}, model.File{Dir: dir, Knob: model.Quota}, model.File{Dir: dir + "/0123456789ab", Knob: model.Quota})
		asks[uid] = 0
	}
	files = append(files, model.File{Dir: n.layout.Class(model.Burstable), Knob: model.Shares})
	for _, f := range files {
		theirs[f] = n.raw(f.Dir, f.Knob)
	}
	write := func(uid string) {
		annotations := ""
		if asks[uid] != 0 {
			annotations = fmt.Sprintf(`waterline.io/cpu-share: "%d", waterline.io/cpu-quota: unlimited`, asks[uid])
		}
		manifest := fmt.Sprintf("{kind: Pod, metadata: {name: %s, uid: %s, annotations: {%s}}, spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}", uid, uid, annotations)
		// Renamed into place: a kill test of ours must not test half a manifest.
		temporary := filepath.Join(manifests, "."+uid)
		if err := os.WriteFile(temporary, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, filepath.Join(manifests, uid+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range pods {
		uid := fmt.Sprintf("p%d", i)
		asks[uid] = int64(1024 * (2 + i))
		write(uid)
	}
	for round := range kills {
		p := n.launch(manifests, runDir)
		time.Sleep(time.Duration(r.Int64N(int64(80 * time.Millisecond))))
		p.kill()
		if bytes.Contains(p.log.Bytes(), []byte("panic")) {
			t.Fatalf("the agent panicked: %s", p.log.String())
		}
		// Nothing of ours writes now. Weights change among those that ask; none goes, so that nothing is given back.
		uid := fmt.Sprintf("p%d", r.IntN(pods))
		asks[uid] = int64(1024 * (2 + r.IntN(200)))
		write(uid)
		if r.IntN(2) == 0 {
			f := files[r.IntN(len(files))]
			value := int64(60_000 + 1000*(round%40)) // a container's quota, which fits into the pod's
			switch {
			case f.Knob == model.Shares:
				value = int64(3000 + 27*(round%500)) // never what anybody asks for
			case filepath.Base(f.Dir) != "0123456789ab":
				value += 100_000
			}
			if err := n.try(f.Dir, f.Knob, value); err == nil {
				theirs[f] = n.raw(f.Dir, f.Knob)
			}
		}
	}
	p := n.launch(manifests, runDir)
	var sum int64
	for i := range pods {
		uid := fmt.Sprintf("p%d", i)
		sum += asks[uid]
		dir := n.layout.Pod(model.Burstable, uid)
		n.expect(dir, model.Shares, asks[uid])
		n.expect(dir, model.Quota, model.Unlimited)
		n.expect(dir+"/0123456789ab", model.Quota, model.Unlimited)
	}
	p.kill()
	restored, err := agent.Restore(t.Context(), agent.Config{CgroupRoot: "/sys/fs/cgroup", RunDir: runDir})
	if err != nil {
		t.Fatalf("%v\nthe agent said: %s", err, p.log.String())
	}
	if len(restored) != len(files) {
		t.Errorf("%d files were on record, want all %d", len(restored), len(files))
	}
	for _, f := range files {
		if got := n.raw(f.Dir, f.Knob); got != theirs[f] {
			t.Errorf("%s %s was given back as %d, but the newest value of another writer was %d", f.Dir, f.Knob, got, theirs[f])
		}
	}
}
