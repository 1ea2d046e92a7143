package nri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/nri"
	"github.com/waterline-io/waterline/test/poll"
)

// fake is the other end: a container runtime as far as NRI goes.
type fake struct {
	t        *testing.T
	socket   string
	refuse   error         // what it answers to a registration
	mute     bool          // it takes the registration and never configures
	complete bool          // it also synchronizes each plugin: it sends an empty list of containers
	timeout  time.Duration // for which it says that it waits for answers; 0: it does not say
	listener net.Listener
	plugins  chan *plugin
	tries    atomic.Int64
}

// plugin is what a runtime has of one of its plugins.
type plugin struct {
	api.PluginService
	runtime *fake
	mux     multiplex.Mux
	name    string
	events  api.EventMask
}

func newFake(t *testing.T) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "nri") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &fake{t: t, socket: filepath.Join(dir, "nri.sock"), plugins: make(chan *plugin, 10)}
}

func (f *fake) start() {
	f.t.Helper()
	var err error
	if f.listener, err = net.Listen("unix", f.socket); err != nil {
		f.t.Fatal(err)
	}
	listener := f.listener
	f.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.tries.Add(1)
			f.accept(conn)
		}
	}()
}

func (f *fake) accept(conn net.Conn) {
	mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead())
	calls, _ := mux.Open(multiplex.PluginServiceConn)
	p := &plugin{PluginService: api.NewPluginClient(ttrpc.NewClient(calls)), runtime: f, mux: mux}
	listener, _ := mux.Listen(multiplex.RuntimeServiceConn)
	server, _ := ttrpc.NewServer()
	api.RegisterRuntimeService(server, p)
	go func() { _ = server.Serve(context.Background(), listener) }()
	mux.Unblock()
}

// RegisterPlugin implements what plugins call.
func (p *plugin) RegisterPlugin(_ context.Context, q *api.RegisterPluginRequest) (*api.Empty, error) {
	if p.runtime.refuse != nil {
		return nil, p.runtime.refuse
	}
	p.name = q.PluginIdx + "-" + q.PluginName
	if p.runtime.mute {
		p.runtime.plugins <- p
		return &api.Empty{}, nil
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		a, err := p.Configure(ctx, &api.ConfigureRequest{
			RuntimeName: "fake", RuntimeVersion: "v1", RequestTimeout: p.runtime.timeout.Milliseconds(),
		})
		if err != nil {
			return
		}
		p.events = api.EventMask(a.Events)
		if p.runtime.complete {
			_, err := p.Synchronize(ctx, &api.SynchronizeRequest{})
			if errors.Is(err, ttrpc.ErrClosed) { // the test has seen what it waited for, and ends before the answer
				return
			}
			if err != nil {
				p.runtime.t.Error(err)
			}
		}
		p.runtime.plugins <- p
	}()
	return &api.Empty{}, nil
}

// UpdateContainers implements what plugins call, and ours never.
func (p *plugin) UpdateContainers(
	context.Context, *api.UpdateContainersRequest,
) (*api.UpdateContainersResponse, error) {
	p.runtime.t.Error("the plugin asked for updates by itself")
	return &api.UpdateContainersResponse{}, nil
}

// stop ends the runtime, or only one that has crashed: the socket stays.
func (f *fake) stop(p *plugin) {
	f.listener.Close()
	p.mux.Close()
}

// plugin waits for one to be configured.
func (f *fake) plugin() *plugin {
	f.t.Helper()
	select {
	case p := <-f.plugins:
		return p
	case <-time.After(5 * time.Minute):
		f.t.Fatal("no plugin came")
		return nil
	}
}

// synchronized waits for a plugin and tells it that there are no containers.
func (f *fake) synchronized() *plugin {
	f.t.Helper()
	p := f.plugin()
	if _, err := p.Synchronize(f.t.Context(), &api.SynchronizeRequest{}); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// reports collects what a client reports.
type reports struct {
	mu   sync.Mutex
	all  []string
	well func() // called when all is well again; it may be nil
}

func (r *reports) report(about string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := "well"
	if err != nil {
		text = err.Error()
	}
	if r.all = append(r.all, about+": "+text); err == nil && r.well != nil {
		r.well()
	}
}

func (r *reports) get() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// run runs a client until the test ends, when nothing of it may be left.
func run(t *testing.T, f *fake, c nri.Config) (*nri.Client, *reports) {
	t.Helper()
	r := &reports{}
	c.Socket, c.Report = f.socket, r.report
	if c.Sys == "" {
		c.Sys = sysfs(t, "0-7", "0-1")
	}
	client := nri.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { client.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(5 * time.Minute):
			t.Error("the client does not end")
		}
	})
	return client, r
}

// sysfs makes a file system that tells of a machine's CPUs and NUMA nodes.
func sysfs(t *testing.T, cpus, mems string) string {
	root := t.TempDir()
	for path, content := range map[string]string{
		"devices/system/cpu/online": cpus, "devices/system/node/has_memory": mems,
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !poll.Until(2*time.Minute, 5*time.Millisecond, holds) {
		t.Fatalf("it never came: %s", what)
	}
}

// always places every container alike.
func always(cpus, mems string) func(model.RuntimeContainer) (model.Placement, bool) {
	return func(model.RuntimeContainer) (model.Placement, bool) {
		return model.Placement{CPUs: cpus, Mems: mems}, true
	}
}

func pod(i int) *api.PodSandbox {
	return &api.PodSandbox{
		Id: fmt.Sprint("sandbox", i), Uid: fmt.Sprint("uid", i), Name: fmt.Sprint("pod", i), Namespace: "default",
	}
}

func containerOf(i int, name, cpus string) *api.Container {
	return &api.Container{
		Id: fmt.Sprint(name, i), PodSandboxId: fmt.Sprint("sandbox", i), Name: name,
		State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{
			CgroupsPath: fmt.Sprintf("/kubepods/burstable/poduid%d/%s%d", i, name, i),
			Resources:   &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: cpus, Shares: api.UInt64(uint64(2))}},
		},
	}
}

func TestCreate(t *testing.T) {
	f := newFake(t)
	f.start()
	var order []string
	want := model.RuntimeContainer{
		PodUID: "uid1", Namespace: "default", Pod: "pod1", Name: "c", ID: "c1", Dir: "kubepods/burstable/poduid1/c1",
		CPUs: "0-3",
	}
	check := func(what string, c model.RuntimeContainer) {
		order = append(order, what)
		if c != want {
			t.Errorf("%s was told of %+v, want %+v", what, c, want)
		}
	}
	client, r := run(t, f, nri.Config{
		Place: func(c model.RuntimeContainer) (model.Placement, bool) {
			check("Place", c)
			return model.Placement{CPUs: "1,3,2"}, true
		},
		Start: func(_ context.Context, c model.RuntimeContainer) { check("Start", c) },
	})
	p := f.synchronized()
	if events := p.events.PrettyString(); p.name != "90-waterline" ||
		events != "CreateContainer,StartContainer,UpdateContainer" {
		t.Errorf("%s subscribed to %s", p.name, events)
	}
	a, err := p.CreateContainer(t.Context(), &api.CreateContainerRequest{
		Pod: pod(1), Container: containerOf(1, "c", "0-3"),
	})
	if err != nil {
		t.Fatal(err)
	}
	only(t, a.GetAdjust().GetLinux().GetResources(), "1-3", "")
	if rest := a.GetAdjust().GetLinux(); len(a.GetUpdate()) != 0 || rest.GetCgroupsPath() != "" ||
		rest.GetOomScoreAdj() != nil || len(a.GetAdjust().GetAnnotations()) != 0 {
		t.Errorf("more than CPUs was adjusted: %v", a)
	}
	if _, err := p.StartContainer(t.Context(), &api.StartContainerRequest{
		Pod: pod(1), Container: containerOf(1, "c", "0-3"),
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, []string{"Place", "Start"}) {
		t.Errorf("the order is %v", order)
	}
	if s := client.Stats(); !s.Connected || s.Connections != 1 || s.Requests < 3 {
		t.Errorf("%+v", s)
	}
	if all := r.get(); len(all) != 0 {
		t.Errorf("although all is well, it reports %q", all)
	}
}

// A container's oom_score_adj is told, and set when it is created; what it has while it runs is its own business.
func TestOOMScore(t *testing.T) {
	f := newFake(t)
	f.start()
	place := model.Placement{OOMScore: 500}
	run(t, f, nri.Config{Place: func(c model.RuntimeContainer) (model.Placement, bool) {
		if !c.Update && c.OOMScore != 999 {
			t.Errorf("told of %+v", c)
		}
		return place, true
	}})
	p := f.synchronized()
	create := func() *api.LinuxContainerAdjustment {
		c := containerOf(1, "c", "")
		c.Linux.OomScoreAdj = api.Int(999)
		a, err := p.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: pod(1), Container: c})
		if err != nil {
			t.Fatal(err)
		}
		return a.GetAdjust().GetLinux()
	}
	if got := create(); got.GetOomScoreAdj().GetValue() != 500 || got.GetResources() != nil {
		t.Errorf("the answer is %v", got)
	}
	place.CPUs = "1"
	if got := create(); got.GetOomScoreAdj().GetValue() != 500 || got.GetResources().GetCpu().GetCpus() != "1" {
		t.Errorf("with CPUs the answer is %v", got)
	}
	place = model.Placement{OOMScore: 500, CPUs: "1000"} // which do not exist
	if got := create(); got.GetOomScoreAdj().GetValue() != 500 || got.GetResources() != nil {
		t.Errorf("with impossible CPUs the answer is %v", got)
	}
	place = model.Placement{OOMScore: 500}
	u, err := p.UpdateContainer(t.Context(), &api.UpdateContainerRequest{Pod: pod(1), Container: containerOf(1, "c", "")})
	if err != nil || len(u.GetUpdate()) != 0 {
		t.Errorf("an update was answered with %v, %v", u, err)
	}
}

// only checks that resources name these CPUs and NUMA nodes, and nothing else.
func only(t *testing.T, r *api.LinuxResources, cpus, mems string) {
	t.Helper()
	cpu := r.GetCpu()
	if cpu.GetCpus() != cpus || cpu.GetMems() != mems || cpu.GetShares() != nil || cpu.GetQuota() != nil ||
		cpu.GetPeriod() != nil ||
		r.GetMemory() != nil || len(r.GetUnified()) != 0 || len(r.GetHugepageLimits()) != 0 || r.GetPids() != nil {
		t.Errorf("the answer is %v, want CPUs %q and nodes %q", r, cpus, mems)
	}
}

func TestUpdate(t *testing.T) {
	f := newFake(t)
	f.start()
	var told []model.RuntimeContainer
	run(t, f, nri.Config{Place: func(c model.RuntimeContainer) (model.Placement, bool) {
		told = append(told, c)
		return model.Placement{CPUs: "4-5", Mems: "1"}, true
	}})
	p := f.synchronized()
	a, err := p.UpdateContainer(t.Context(), &api.UpdateContainerRequest{
		Pod: pod(1), Container: containerOf(1, "c", "0-3"),
		LinuxResources: &api.LinuxResources{
			Cpu: &api.LinuxCPU{Quota: api.Int64(int64(50_000))}, Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 20))},
		},
	})
	if err != nil || len(a.GetUpdate()) != 1 {
		t.Fatal(a, err)
	}
	u := a.GetUpdate()[0]
	if u.GetContainerId() != "c1" || !u.GetIgnoreFailure() {
		t.Errorf("the update is %v", u)
	}
	only(t, u.GetLinux().GetResources(), "4-5", "1")
	if told[0].CPUs != "0-3" {
		t.Errorf("an update without CPUs was told as %q", told[0].CPUs)
	}
	if _, err := p.UpdateContainer(t.Context(), &api.UpdateContainerRequest{
		Pod: pod(1), Container: containerOf(1, "c", "0-3"),
		LinuxResources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "6"}},
	}); err != nil || told[1].CPUs != "6" {
		t.Errorf("an update to CPU 6 was told as %q: %v", told[1].CPUs, err)
	}
}

// TestStart checks that the runtime has its answer only when Start has returned, from the time of which it gets half,
// and that an older runtime, which relays starts as changes of state, gets it too.
func TestStart(t *testing.T) {
	f := newFake(t)
	f.timeout = time.Hour
	f.start()
	type asked struct {
		model.RuntimeContainer
		left time.Duration
		done chan struct{}
	}
	started := make(chan asked)
	client, _ := run(t, f, nri.Config{Start: func(ctx context.Context, c model.RuntimeContainer) {
		end, _ := ctx.Deadline()
		a := asked{c, time.Until(end), make(chan struct{})}
		started <- a
		<-a.done
	}})
	p := f.synchronized()
	static := pod(1)
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	fromAPI := pod(1)
	fromAPI.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
	c := containerOf(1, "c", "")
	for _, step := range []struct {
		name   string
		static bool
		start  func() error
	}{
		{"a request", false, func() error {
			_, err := p.StartContainer(t.Context(), &api.StartContainerRequest{Pod: fromAPI, Container: c})
			return err
		}},
		{"of a static pod", true, func() error {
			_, err := p.StartContainer(t.Context(), &api.StartContainerRequest{Pod: static, Container: c})
			return err
		}},
		{"a change of state", false, func() error {
			_, err := p.StateChange(t.Context(), &api.StateChangeEvent{
				Event: api.Event_START_CONTAINER, Pod: fromAPI, Container: c,
			})
			return err
		}},
	} {
		answered := make(chan error, 1)
		go func() { answered <- step.start() }()
		a := <-started
		if a.ID != "c1" || a.Name != "c" || a.PodUID != "uid1" || a.Static != step.static {
			t.Errorf("%s: told of %+v", step.name, a.RuntimeContainer)
		}
		if a.left <= 0 || a.left > 30*time.Minute { // clock: of an hour, it is to have half
			t.Errorf("%s: Start has %s", step.name, a.left)
		}
		select {
		case err := <-answered:
			t.Errorf("%s: answered before Start has returned: %v", step.name, err)
		default:
		}
		close(a.done)
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	if _, err := p.StateChange(t.Context(), &api.StateChangeEvent{
		Event: api.Event_STOP_CONTAINER, Pod: fromAPI, Container: c,
	}); err != nil {
		t.Error(err)
	}
	if s := client.Stats(); s.Late != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLateStart checks that a start which takes too long goes on before the runtime drops the connection, and is
// counted.
func TestLateStart(t *testing.T) {
	f := newFake(t)
	f.timeout = 100 * time.Millisecond
	f.start()
	client, _ := run(t, f, nri.Config{Start: func(ctx context.Context, _ model.RuntimeContainer) { <-ctx.Done() }})
	p := f.synchronized()
	if _, err := p.StartContainer(t.Context(), &api.StartContainerRequest{
		Pod: pod(1), Container: containerOf(1, "c", ""),
	}); err != nil {
		t.Fatal(err)
	}
	if s := client.Stats(); s.Late != 1 || !s.Connected {
		t.Errorf("%+v", s)
	}
}

// TestSynchronize brings a full node in one message and in pieces, where containers come before their pods.
func TestSynchronize(t *testing.T) {
	const pods = 250
	f := newFake(t)
	f.start()
	var mu sync.Mutex
	seen := map[model.RuntimeContainer]int{}
	client, _ := run(t, f, nri.Config{Place: always("0", ""), Runs: func(c model.RuntimeContainer) {
		mu.Lock()
		seen[c]++
		mu.Unlock()
	}})
	p := f.plugin()
	if client.Stats().Connected {
		t.Error("connected before the runtime has told of its containers")
	}
	whole := &api.SynchronizeRequest{}
	for i := range pods {
		whole.Pods = append(whole.Pods, pod(i))
		for _, name := range []string{"a", "b"} {
			c := containerOf(i, name, "")
			for j := range 30 { // as long as they are in life
				c.Env = append(c.Env, fmt.Sprintf("SOME_SERVICE_PORT_%d=tcp://10.96.0.1:443", j))
			}
			whole.Containers = append(whole.Containers, c)
		}
	}
	gone := containerOf(0, "gone", "")
	gone.State = api.ContainerState_CONTAINER_STOPPED
	whole.Containers = append(whole.Containers, gone)
	check := func(a *api.SynchronizeResponse, err error, times int) {
		t.Helper()
		if err != nil || len(a.GetUpdate()) != 0 || a.GetMore() {
			t.Fatal(a, err)
		}
		if len(seen) != 2*pods {
			t.Fatalf("%d containers were seen", len(seen))
		}
		for c, n := range seen {
			if n != times || c.PodUID == "" {
				t.Fatalf("%+v was seen %d times", c, n)
			}
		}
	}
	a, err := p.Synchronize(t.Context(), whole)
	check(a, err, 1)
	t.Logf("250 pods with two containers each: %s in the client", client.Stats().Slowest)
	half := &api.SynchronizeRequest{Pods: whole.Pods[:10], Containers: whole.Containers[:400], More: true}
	if a, err := p.Synchronize(t.Context(), half); err != nil || !a.GetMore() || len(a.GetUpdate()) != 0 {
		t.Fatal(a, err)
	}
	a, err = p.Synchronize(t.Context(), &api.SynchronizeRequest{Pods: whole.Pods[10:], Containers: whole.Containers[400:]})
	check(a, err, 2)
	if s := client.Stats(); !s.Connected || s.Connections != 1 {
		t.Errorf("%+v", s)
	}
}

func TestRestart(t *testing.T) {
	f := newFake(t)
	f.start()
	client, r := run(t, f, nri.Config{Place: always("0", "")})
	p := f.synchronized()
	before := runtime.NumGoroutine()
	for range 3 {
		f.stop(p)
		eventually(t, "the loss is noticed", func() bool { return !client.Stats().Connected })
		time.Sleep(200 * time.Millisecond)
		f.start()
		p = f.synchronized()
		if _, err := p.CreateContainer(t.Context(), &api.CreateContainerRequest{
			Pod: pod(1), Container: containerOf(1, "c", ""),
		}); err != nil {
			t.Error(err)
		}
	}
	if s := client.Stats(); s.Connections != 4 {
		t.Errorf("%+v", s)
	}
	eventually(t, "old connections leave nothing behind", func() bool { return runtime.NumGoroutine() <= before+3 })
	t.Logf("%q", r.get())
}

// virtually runs a test in the time of a bubble, where waiting costs nothing. Time there stands still while the client
// has a connection. The runtime listens all the time, so it stays outside, where it calls functions.
func virtually(t *testing.T, f func(t *testing.T, outside func(func()))) {
	calls, done := make(chan func()), make(chan struct{})
	defer close(calls)
	go func() {
		for call := range calls {
			call()
			done <- struct{}{}
		}
	}()
	synctest.Test(t, func(t *testing.T) { f(t, func(call func()) { calls <- call; <-done }) })
}

func TestLateSocket(t *testing.T) {
	f := newFake(t)
	f.complete = true
	virtually(t, func(t *testing.T, outside func(func())) {
		seen := make(chan struct{}, 1)
		client, r := run(t, f, nri.Config{})
		r.mu.Lock()
		r.well = func() { seen <- struct{}{} }
		r.mu.Unlock()
		time.Sleep(time.Hour + time.Second/3) // by now it waits half a minute between tries
		all := r.get()
		if len(all) != 1 || !strings.Contains(all[0], f.socket) || client.Stats().Connected {
			t.Errorf("without a socket it reports %q", all)
		}
		outside(f.start)
		began := time.Now()
		<-seen
		if took := time.Since(began); took > time.Second { // clock: the bubble's, and the client looks each second
			t.Errorf("a socket that appears was noticed after %s", took)
		}
		if all := r.get(); len(all) != 2 || all[1] != "nri: well" {
			t.Errorf("then it reports %q", all)
		}
	})
}

func TestRefused(t *testing.T) {
	f := newFake(t)
	f.refuse = fmt.Errorf("no plugins here")
	f.start()
	virtually(t, func(t *testing.T, _ func(func())) {
		client, r := run(t, f, nri.Config{})
		time.Sleep(10 * time.Minute)
		// It pauses for 0.1, 0.2, 0.4 s and so on, and then for half a minute each time.
		if tries := f.tries.Load(); tries != 28 {
			t.Errorf("it tried %d times in ten minutes, not 28 times", tries)
		}
		if all := r.get(); len(all) != 1 || !strings.Contains(all[0], "no plugins here") || client.Stats().Connected {
			t.Errorf("refused, it reports %q", all)
		}
	})
}

// TestMute ends a runtime between registration and configuration, on which containerd's own stub hangs.
func TestMute(t *testing.T) {
	f := newFake(t)
	f.mute = true
	f.start()
	run(t, f, nri.Config{})
	f.stop(f.plugin())
	f.mute = false
	f.start()
	f.synchronized()
}

// TestNeverFails asks what no runtime should, and answers what no agent should: the runtime must get an answer that
// leaves the container alone, because with an error it would not create it.
func TestNeverFails(t *testing.T) {
	for name, place := range map[string]func(model.RuntimeContainer) (model.Placement, bool){
		"panic":      func(model.RuntimeContainer) (model.Placement, bool) { panic("no") },
		"nonsense":   always("all of them", ""),
		"offline":    always("7-8", ""),
		"no node":    always("1", "2"),
		"minus":      always("-1", ""),
		"huge":       always("99999999999999999999", ""),
		"blank":      always(" \n", ""),
		"nothing":    always("", ""),
		"no opinion": func(model.RuntimeContainer) (model.Placement, bool) { return model.Placement{CPUs: "1"}, false },
		"nil":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.start()
			_, r := run(t, f, nri.Config{Place: place, Start: func(context.Context, model.RuntimeContainer) { panic("no") }})
			p := f.synchronized()
			a, err := p.CreateContainer(t.Context(), &api.CreateContainerRequest{
				Pod: pod(1), Container: containerOf(1, "c", ""),
			})
			if err != nil || a.GetAdjust() != nil {
				t.Errorf("create: %v, %v", a, err)
			}
			u, err := p.UpdateContainer(t.Context(), &api.UpdateContainerRequest{
				Pod: pod(1), Container: containerOf(1, "c", ""),
			})
			if err != nil || len(u.GetUpdate()) != 0 {
				t.Errorf("update: %v, %v", u, err)
			}
			if _, err := p.StartContainer(t.Context(), &api.StartContainerRequest{
				Pod: pod(1), Container: containerOf(1, "c", ""),
			}); err != nil {
				t.Errorf("start: %v", err)
			}
			if all := r.get(); len(all) > 3 {
				t.Errorf("it repeats itself: %q", all)
			}
		})
	}
	t.Run("pieces missing", func(t *testing.T) {
		f := newFake(t)
		f.start()
		run(t, f, nri.Config{
			Place: always("1", ""), Runs: func(model.RuntimeContainer) {},
			Start: func(context.Context, model.RuntimeContainer) {},
		})
		p := f.plugin()
		if _, err := p.Synchronize(t.Context(), &api.SynchronizeRequest{
			Containers: []*api.Container{{}, {PodSandboxId: "unknown"}}, Pods: []*api.PodSandbox{{}},
		}); err != nil {
			t.Error(err)
		}
		for _, q := range []*api.CreateContainerRequest{
			{}, {Pod: pod(1)}, {Container: &api.Container{}}, {Container: &api.Container{Linux: &api.LinuxContainer{}}},
		} {
			if a, err := p.CreateContainer(t.Context(), q); err != nil ||
				a.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus() != "1" {
				t.Errorf("create: %v, %v", a, err)
			}
		}
		for _, q := range []*api.UpdateContainerRequest{
			{}, {Container: &api.Container{}}, {LinuxResources: &api.LinuxResources{}},
		} {
			if a, err := p.UpdateContainer(t.Context(), q); err != nil || len(a.GetUpdate()) != 0 {
				t.Errorf("an update of no container: %v, %v", a, err)
			}
		}
		for _, q := range []*api.StartContainerRequest{{}, {Pod: pod(1)}, {Container: &api.Container{}}} {
			if _, err := p.StartContainer(t.Context(), q); err != nil {
				t.Errorf("start: %v", err)
			}
		}
		if _, err := p.Shutdown(t.Context(), &api.Empty{}); err != nil {
			t.Error(err)
		}
	})
}

func TestSlow(t *testing.T) {
	f := newFake(t)
	f.start()
	client, _ := run(t, f, nri.Config{Place: func(c model.RuntimeContainer) (model.Placement, bool) {
		if c.ID == "slow1" {
			time.Sleep(20 * time.Millisecond)
		}
		return model.Placement{CPUs: "1"}, true
	}})
	p := f.synchronized()
	before := client.Stats()
	for _, name := range []string{"quick", "slow"} {
		if _, err := p.CreateContainer(t.Context(), &api.CreateContainerRequest{
			Pod: pod(1), Container: containerOf(1, name, ""),
		}); err != nil {
			t.Fatal(err)
		}
	}
	// The answer is out before it is counted.
	eventually(t, "both are counted", func() bool { return client.Stats().Requests == before.Requests+2 })
	if s := client.Stats(); s.Slow < before.Slow+1 || s.Slowest < 20*time.Millisecond {
		t.Errorf("%+v", s)
	}
}

func TestDir(t *testing.T) {
	for path, want := range map[string]string{
		"":                            "",
		"/kubepods/burstable/pod1/c1": "kubepods/burstable/pod1/c1",
		"kubepods-burstable-pod1_2.slice:cri:c1": "kubepods.slice/kubepods-burstable.slice/" +
			"kubepods-burstable-pod1_2.slice/cri-c1.scope",
		"kubepods.slice:cri-containerd:c1":         "kubepods.slice/cri-containerd-c1.scope",
		"a-kubepods-podx.slice:cri-containerd:c-1": "a.slice/a-kubepods.slice/a-kubepods-podx.slice/cri-containerd-c-1.scope",
	} {
		f := newFake(t)
		f.start()
		var got model.RuntimeContainer
		run(t, f, nri.Config{Start: func(_ context.Context, c model.RuntimeContainer) { got = c }})
		p := f.synchronized()
		if _, err := p.StartContainer(t.Context(), &api.StartContainerRequest{
			Container: &api.Container{Linux: &api.LinuxContainer{CgroupsPath: path}},
		}); err != nil {
			t.Fatal(err)
		}
		if got.Dir != want {
			t.Errorf("%q is %q, want %q", path, got.Dir, want)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	f := &fake{t: &testing.T{}, socket: filepath.Join(b.TempDir(), "s"), plugins: make(chan *plugin, 1)}
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			f.accept(conn)
		}
	}()
	client := nri.New(nri.Config{Socket: f.socket, Place: always("0", "")})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { client.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	p := <-f.plugins
	q := &api.CreateContainerRequest{Pod: pod(1), Container: containerOf(1, "c", "")}
	for b.Loop() {
		if _, err := p.CreateContainer(ctx, q); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(client.Stats().Slowest.Microseconds()), "slowest-µs")
}
