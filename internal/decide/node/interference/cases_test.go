package interference

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/golden"
)

// TestCases runs the golden cases. A case is blocks of commands, a line of four dashes, and what happened in their
// time.
//
//	pod NAME online|batch [shares=N] [use=MILLI] [swing=MILLI,DURATION] [wait=N]   use alternates between the two values
//	hurts NAME VICTIM N          each core that the one uses makes the other wait for N thousandths of the time
//	blind NAME                   the pod is not measured, until it is said anew
//	disobey NAME                 it uses what it likes
//	drop NAME                    it ends
//	run DURATION
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		c := scene{start: time.Hour, in: Input{Acts: true, Clock: time.Hour}}
		return golden.Blocks(t, content, c.do, c.outcome)
	}, "testdata/*.case")
}

// scene is the node of a case.
type scene struct {
	start time.Duration
	in    Input
	pods  []load
	hurts []hurt
	state State
	log   strings.Builder
	last  string
}

// load is how one pod behaves.
type load struct {
	use, other, wait int64
	every            time.Duration
	blind, disobeys  bool
}

type hurt struct {
	who, victim string
	times       int64
}

func (c *scene) find(uid string) int {
	return slices.IndexFunc(c.in.Pods, func(p Pod) bool { return p.UID == uid })
}

func (c *scene) do(line string) error {
	words := strings.Fields(line)
	switch i := c.find(words[1]); words[0] {
	case "pod":
		return c.pod(i, words[1:])
	case "drop":
		c.in.Pods, c.pods = slices.Delete(c.in.Pods, i, i+1), slices.Delete(c.pods, i, i+1)
	case "blind":
		c.pods[i].blind = true
	case "disobey":
		c.pods[i].disobeys = true
	case "hurts":
		n, err := strconv.ParseInt(words[3], 10, 64)
		c.hurts = slices.DeleteFunc(c.hurts, func(h hurt) bool { return h.who == words[1] && h.victim == words[2] })
		c.hurts = append(c.hurts, hurt{words[1], words[2], n})
		return err
	case "run":
		d, err := time.ParseDuration(words[1])
		for range int(d / time.Second) {
			c.second()
		}
		return err
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

func (c *scene) pod(i int, words []string) (err error) {
	if i < 0 {
		i, _ = slices.BinarySearchFunc(c.in.Pods, words[0],
			func(p Pod, uid string) int { return strings.Compare(p.UID, uid) })
		c.in.Pods = slices.Insert(c.in.Pods, i, Pod{UID: words[0], New: c.in.Clock > c.start})
		c.pods = slices.Insert(c.pods, i, load{})
	}
	p, l := &c.in.Pods[i], load{every: time.Second}
	p.Online, p.Batch, p.Shares = words[1] == "online", words[1] == "batch", 1024
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "shares":
			var shares int64
			shares, err = strconv.ParseInt(value, 10, 32)
			p.Shares = int32(shares)
		case "use":
			l.use, err = strconv.ParseInt(value, 10, 64)
		case "wait":
			l.wait, err = strconv.ParseInt(value, 10, 64)
		case "swing":
			milli, every, _ := strings.Cut(value, ",")
			if l.other, err = strconv.ParseInt(milli, 10, 64); err == nil {
				l.every, err = time.ParseDuration(every)
			}
		default:
			err = fmt.Errorf("a pod has no %q", key)
		}
		if err != nil {
			return err
		}
	}
	if !strings.Contains(strings.Join(words, " "), "swing=") {
		l.other = l.use
	}
	c.pods[i] = l
	return nil
}

// second lets a second pass. A little noise, always the same, keeps what is steady from being all the same.
func (c *scene) second() {
	c.in.Clock += time.Second
	second := int64((c.in.Clock - c.start) / time.Second)
	waits := make([]int64, len(c.in.Pods))
	for i := range c.in.Pods {
		p, l := &c.in.Pods[i], &c.pods[i]
		p.Used = l.use
		if (second/int64(l.every/time.Second))%2 == 1 {
			p.Used = l.other
		}
		p.Used += p.Used * (second * int64(7919+i*31) % 21) / 1000
		if h := c.state.throttled(p.UID); h != nil && !l.disobeys {
			p.Used = min(p.Used, h.Milli)
		}
		waits[i] = l.wait + second*int64(104729+i*17)%23
	}
	for _, h := range c.hurts {
		if who, victim := c.find(h.who), c.find(h.victim); who >= 0 && victim >= 0 {
			waits[victim] += c.in.Pods[who].Used * h.times / 1000
		}
	}
	for i := range c.in.Pods {
		if !c.pods[i].blind {
			c.in.Pods[i].UsedAt = c.in.Clock
			c.in.Pods[i].lack(c.in.Clock, waits[i])
		}
	}
	var r model.Interference
	r, c.state = Decide(c.in, c.state)
	c.note(&r)
	for i := range c.in.Pods {
		c.in.Pods[i].New = false
	}
}

// note writes down what has changed, with the numbers of that moment.
func (c *scene) note(b *model.Interference) {
	now, text := "", ""
	add := func(key string, reason model.Reason) {
		now += key + string(reason.Code) + "\n"
		text += "  " + key + "  " + reason.String() + "\n"
	}
	if f := &b.Finding; f.Victim != "" {
		who := ""
		if f.Suspect != "" {
			who = " for " + f.Suspect
		}
		if b.Waits {
			who += ", which is not throttled now"
		}
		add(f.Victim+" waits"+who, f.Reason())
	}
	for i := range b.Throttles {
		h := &b.Throttles[i]
		add(fmt.Sprintf("%s may use %d for %s", h.UID, h.Milli, h.Victim), h.Reason())
	}
	if h := &b.Undone; h.UID != "" {
		add(h.UID+" has back what it had", h.Reason())
	}
	if now == c.last {
		return
	}
	c.last = now
	if text == "" {
		text = "  nothing\n"
	}
	fmt.Fprintf(&c.log, "%s\n%s", c.in.Clock-c.start, text)
}

func (c *scene) outcome() string {
	text := c.log.String()
	c.log.Reset()
	return text
}
