package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// sideBySide is one run: the server, batch beside it, and who asks.
type sideBySide struct {
	*lab
	cell   cell
	length time.Duration
	server redis
	frames *counter
	stress stress
}

// begin starts the agent, the server and batch, as far as the mode has them.
func (s *sideBySide) begin(ctx context.Context) error {
	online := serverPod()
	encoder, burner := batchPods(s.cell.policy != "", s.cfg.Node != nil)
	var batch []*pod
	if s.cell.encodes {
		batch = append(batch, encoder)
	}
	if s.cell.burns {
		batch = append(batch, burner)
	}
	if s.cfg.Node != nil {
		if err := s.cfg.Node.Govern(ctx, s.cell.policy); err != nil {
			return err
		}
	}
	// Before the server, which a node counts with all that it requests while it is new.
	if err := s.create(ctx, batch...); err != nil {
		return err
	}
	if s.cell.online {
		if err := s.create(ctx, online); err != nil {
			return err
		}
	}
	if s.cell.policy != "" {
		if err := s.govern(ctx, s.cell.policy, batch...); err != nil {
			return err
		}
	}
	var err error
	if s.cell.online {
		if s.server, err = s.startRedis(ctx, online); err != nil {
			return err
		}
	}
	if s.cell.encodes {
		if s.frames, err = s.startEncoder(encoder); err != nil {
			return err
		}
	}
	if s.cell.burns {
		s.stress, err = s.startStress(burner)
	}
	return err
}

// measure asks the server, if there is one, and reads what everybody used meanwhile and what batch did.
func (s *sideBySide) measure(ctx context.Context, steps int) (colocated, error) {
	run := colocated{mode: s.cell.name, lead: s.cell.lead, load: s.cell.load, repeat: s.cell.repeat, upkeep: map[string]time.Duration{}}
	look := s.observe
	if s.cell.online {
		look = func(ctx context.Context, run *colocated) error { return s.ask(ctx, steps, run) }
	}
	err := look(ctx, &run)
	if err == nil && s.cell.burns {
		run.operations, err = s.stop(ctx, s.stress)
	}
	return run, err
}

// ask asks the server while it observes.
func (s *sideBySide) ask(ctx context.Context, steps int, run *colocated) (err error) {
	var out strings.Builder
	generator, err := s.generate(steps, &out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, generator.kill()) }()
	if err := s.observe(ctx, run); err != nil {
		return err
	}
	if err := generator.wait(ctx); err != nil {
		return err
	}
	scheduled, all, err := parseAsked(out.String())
	run.scheduled = scheduled
	run.count(all)
	return err
}

// generate starts asking the server.
func (s *sideBySide) generate(steps int, out *strings.Builder) (*process, error) {
	return s.startGenerator(out, "--address", s.server.socket,
		"--connections", fmt.Sprint(connections), "--watch", fmt.Sprint(s.server.cmd.Process.Pid),
		"--line", s.server.request(steps), "--rate", s.cell.course.times(1/redisRequest.Seconds()).String(),
		"--lead", s.cell.lead.String(), "--for", s.length.String(), "--seed", fmt.Sprint(s.cell.repeat+1))
}

// startGenerator starts who asks the server, in a cgroup outside of kubepods where it is on time. It ends by itself.
func (l *lab) startGenerator(out *strings.Builder, args ...string) (*process, error) {
	l.asking = l.box.name + "/generator"
	if err := l.box.makeUrgent(l.asking); err != nil {
		return nil, err
	}
	generator, err := l.startIn("the generator", l.asking, out, "ask", append([]string{"--urgent"}, args...)...)
	l.procs = slices.DeleteFunc(l.procs, func(p *process) bool { return p == generator }) // it will end
	return generator, err
}

// observe measures for the run's length.
func (s *sideBySide) observe(ctx context.Context, run *colocated) error {
	run.began = time.Now()
	if err := Sleep(ctx, s.cell.lead); err != nil {
		return err
	}
	before, err := s.look()
	if err != nil {
		return err
	}
	run.window, err = s.lab.measure(ctx, s.doing(), int(s.length.Seconds()), func(w window) string {
		run.seconds = append(run.seconds, w)
		return fmt.Sprintf("pods use %.2f CPUs", w.cpus())
	})
	if err != nil {
		return err
	}
	after, err := s.look()
	if err != nil {
		return err
	}
	run.frames = (after.frames - before.frames) / after.at.Sub(before.at).Seconds()
	run.waited = after.waited - before.waited
	for who, used := range after.upkeep {
		run.upkeep[who] = used - before.upkeep[who]
	}
	run.loadAverage = loadAverage()
	return nil
}

// glance is what had been done at one moment, beside what lab.measure reads.
type glance struct {
	at     time.Time
	frames float64
	waited time.Duration            // that the server wanted a CPU and had none
	upkeep map[string]time.Duration // CPU time, on a real node
}

func (s *sideBySide) look() (g glance, err error) {
	if s.frames != nil {
		g.frames = s.frames.count()
	}
	if s.cell.online {
		server, err := readSchedstat(s.server.cmd.Process.Pid)
		if err != nil {
			return g, err
		}
		g.waited = server.waited
	}
	if s.cfg.Node != nil {
		if g.upkeep, err = readUpkeep("/proc"); err != nil {
			return g, err
		}
	}
	g.at = time.Now()
	return g, nil
}

func (s *sideBySide) doing() string {
	what := fmt.Sprintf("repeat %d, mode %s", s.cell.repeat+1, s.cell.name)
	if s.cell.online {
		what += fmt.Sprintf(", %.0f %% of a CPU", 100*s.cell.load)
	}
	if s.cell.attempt > 0 {
		what += fmt.Sprintf(", attempt %d because the generator was late", s.cell.attempt+1)
	}
	return what
}

// makeUrgent makes a cgroup for a process that must be on time however busy the pods are. Where the kernel divides real-time
// CPU time among cgroups, as some do on v1, one has none unless it is given.
func (b *sandbox) makeUrgent(dir string) error {
	if err := b.mkdir(dir); err != nil {
		return err
	}
	for _, group := range []string{b.name, dir} {
		file := filepath.Join(b.mount.Path, group, "cpu.rt_runtime_us")
		if _, err := os.Stat(file); err == nil {
			// Others may have it all: then weight and nice must do, and the result says so.
			_ = writeFile(file, "400000")
		}
	}
	return b.setWeight(dir, cgroup.ToRaw(b.mount.Version, model.Shares, model.Number(model.MaxShares)))
}
