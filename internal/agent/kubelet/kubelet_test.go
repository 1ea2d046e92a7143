package kubelet

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
)

// asked is an agent that only asks the kubelet.
type asked struct {
	poller    *Poller
	out       strings.Builder
	settings  model.Kubelet
	pool      model.CPUPool
	refused   error
	questions int // for the pool
	answers   chan model.Kubelet
}

// ask runs f beside an agent that asks the kubelet, on a clock of its own.
func ask(t *testing.T, policy bool, f func(t *testing.T, k *asked)) {
	synctest.Test(t, func(t *testing.T) {
		running := &model.Pod{
			Namespace: "default", Name: "db", QoS: model.Guaranteed, Containers: []model.Container{{Name: "c", ID: "1"}},
		}
		k := &asked{
			settings: model.Kubelet{Known: true, StaticCPUs: policy},
			pool: model.CPUPool{
				Allocatable: model.CPUs(1, 2, 3), Taken: model.CPUs(1), Pods: map[string]bool{"default/db": true},
			},
			answers: make(chan model.Kubelet, 1),
		}
		k.poller = New(Poller{
			Log:      faillog.New(slog.New(slog.NewTextHandler(&k.out, nil))),
			Pods:     func() model.Snapshot { return model.Snapshot{Pods: []*model.Pod{running}} },
			Settings: func(context.Context) (model.Kubelet, error) { return k.settings, nil },
			Pool:     func(context.Context) (model.CPUPool, error) { k.questions++; return k.pool, k.refused },
		})
		ctx, cancel := context.WithCancel(t.Context())
		go k.poller.Run(ctx, k.answers)
		synctest.Wait()
		f(t, k)
		cancel()
		synctest.Wait()
	})
}

// heard returns what the agent's loop would have been told by now.
func (k *asked) heard(t *testing.T) model.Kubelet {
	t.Helper()
	synctest.Wait()
	select {
	case is := <-k.answers:
		return is
	default:
		t.Fatal("the loop was told nothing")
		return model.Kubelet{}
	}
}

func (k *asked) silent(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case is := <-k.answers:
		t.Errorf("the loop was told %+v", is)
	default:
	}
}

func TestPool(t *testing.T) {
	ask(t, true, func(t *testing.T, k *asked) {
		want := model.Kubelet{
			Known: true, StaticCPUs: true, PoolKnown: true, AllocatableCPUs: model.CPUs(1, 2, 3), TakenCPUs: model.CPUs(1),
		}
		if is := k.heard(t); is != want {
			t.Errorf("at the start: %+v", is)
		}

		t.Log("what does not change is not told")
		before := k.questions
		time.Sleep(time.Minute)
		k.silent(t)
		if n := k.questions - before; n != 6 {
			t.Errorf("within a minute it was asked %d times, want 6", n)
		}

		t.Log("a doubt is looked into at once, many of them once a second")
		k.pool.Taken = model.CPUs(1, 2)
		want.TakenCPUs = model.CPUs(1, 2)
		time.Sleep(2 * time.Second)
		k.poller.Doubt()
		if is := k.heard(t); is != want {
			t.Errorf("after a doubt: %+v", is)
		}
		before = k.questions
		for range 500 {
			k.poller.Doubt()
			time.Sleep(10 * time.Millisecond)
		}
		if n := k.questions - before; n < 4 || n > 6 {
			t.Errorf("doubted for 5 s it was asked %d times", n)
		}

		t.Log("a kubelet that restarts is no news, only old")
		time.Sleep(3 * time.Second) // the last doubt is over, and the next regular question is some seconds away
		k.refused = errors.New("connection refused")
		k.poller.Doubt()
		old := want
		old.PoolKnown = false
		if is := k.heard(t); is != old {
			t.Errorf("while it restarts: %+v", is)
		}
		k.refused = nil
		time.Sleep(2 * poolPause)
		if is := k.heard(t); is != want || k.out.Len() > 0 {
			t.Errorf("after a restart: %+v, %s", is, k.out.String())
		}

		t.Log("one that stays away is reported; the sets stay as they were")
		k.refused = errors.New("connection refused")
		time.Sleep(30 * time.Second)
		if is := k.heard(t); is != old || strings.Count(k.out.String(), "connection refused") != 1 {
			t.Errorf("without an answer: %+v, %s", is, k.out.String())
		}

		t.Log("when it comes back its settings are read before its answer is told")
		k.refused = nil
		k.settings.StaticCPUs = false
		time.Sleep(poolInterval)
		if is := k.heard(t); is != k.settings {
			t.Errorf("with another policy: %+v", is)
		}
	})
}

// TestIncomplete checks that a kubelet that has just started, and knows no pods yet, is not believed.
func TestIncomplete(t *testing.T) {
	ask(t, true, func(t *testing.T, k *asked) {
		want := k.heard(t)
		k.pool.Taken, k.pool.Pods = model.CPUSet{}, nil
		time.Sleep(30 * time.Second)
		want.PoolKnown = false
		if is := k.heard(t); is != want || !strings.Contains(k.out.String(), "default/db") {
			t.Errorf("told %+v, said %s", is, k.out.String())
		}
	})
}

// TestNoPool checks that a kubelet with policy none is never asked for its pool, whatever happens.
func TestNoPool(t *testing.T) {
	ask(t, false, func(t *testing.T, k *asked) {
		if is := k.heard(t); is != k.settings {
			t.Errorf("told %+v", is)
		}
		k.poller.Doubt()
		time.Sleep(time.Hour)
		k.silent(t)
		if k.questions > 0 {
			t.Errorf("it was asked %d times", k.questions)
		}
	})
}

// alertOfErrors returns above how many failures of one operation within which time the rule WaterlineErrors fires.
func alertOfErrors(t *testing.T) (uint64, time.Duration) {
	t.Helper()
	rules, err := os.ReadFile("../../../deploy/chart/rules/waterline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`increase\(waterline_errors_total\[(\w+)\]\)\) > (\d+)`).FindSubmatch(rules)
	if found == nil {
		t.Fatal("the rules have no alert about waterline_errors_total")
	}
	window, err := time.ParseDuration(string(found[1]))
	most, mostErr := strconv.ParseUint(string(found[2]), 10, 32)
	if err := errors.Join(err, mostErr); err != nil {
		t.Fatal(err)
	}
	return most, window
}

// TestUnread checks that a kubelet whose certificate is not trusted, which is how kubeadm installs it, is no storm of
// errors: one line in the log, one thing to do, and fewer failures than an alert needs. Once that is corrected, the
// settings are known within minutes.
func TestUnread(t *testing.T) {
	alert, window := alertOfErrors(t)
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := faillog.New(slog.New(slog.NewTextHandler(&out, nil)))
		refused := errors.New("tls: failed to verify certificate: x509: certificate signed by unknown authority")
		settings := model.Kubelet{Unread: "set the value"}
		p := New(Poller{
			Log: log, Pods: func() model.Snapshot { return model.Snapshot{} },
			Settings: func(context.Context) (model.Kubelet, error) { return settings, refused },
		})
		answers := make(chan model.Kubelet, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx, answers)
		failures := func() (n uint64) {
			log.Each(func(what string, count uint64) {
				if what == "kubelet" {
					n = count
				}
			})
			return n
		}
		synctest.Wait()
		if is := <-answers; is != settings {
			t.Errorf("after the first failure the loop knows %+v", is)
		}
		for turn := range 60 {
			before := failures()
			time.Sleep(window)
			if n := failures() - before; n == 0 || n > alert {
				t.Errorf("from minute %d on: %d failures in %s, and the alert begins above %d", turn*10, n, window, alert)
			}
		}
		select {
		case is := <-answers:
			t.Errorf("later the loop was told %+v", is)
		default:
		}
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Errorf("%d lines in the log:\n%s", n, out.String())
		}
		settings, refused = model.Kubelet{Known: true}, nil
		time.Sleep(settingsInterval)
		synctest.Wait()
		select {
		case is := <-answers:
			if is != settings {
				t.Errorf("once it is corrected: %+v", is)
			}
		default:
			t.Errorf("nothing was told within %s after it was corrected", settingsInterval)
		}

		t.Log("a kubelet that is away is tried often")
		refused = errors.New("connection refused")
		settings = model.Kubelet{}
		time.Sleep(settingsInterval)
		before := failures()
		time.Sleep(time.Minute)
		if n := failures() - before; n < 5 {
			t.Errorf("%d attempts in a minute", n)
		}
		cancel()
		synctest.Wait()
	})
}
