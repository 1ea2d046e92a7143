package experiment

import (
	"bufio"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// redisRequest is how much CPU time Redis is to spend on one request, on a CPU that it has to itself.
const redisRequest = 1500 * time.Microsecond

// redisLoop is what a request costs: so many steps of a loop in Redis's own Lua.
const redisLoop = "local x = 0 for i = 1, tonumber(ARGV[1]) do x = x + i end return 1"

// redis is a Redis server that runs in a pod. It answers one request after the other, on one thread.
type redis struct {
	*process
	socket string
}

// startRedis starts Redis in a pod. It keeps nothing on disk and listens on a Unix socket only, because packets on the
// loopback interface are work of the kernel that is nobody's.
func (l *lab) startRedis(ctx context.Context, p *pod) (r redis, err error) {
	path, err := program("redis-server")
	if err != nil {
		return r, err
	}
	r.socket = filepath.Join(l.dir, "redis.sock")
	if r.process, err = l.start("redis", l.kubelet.containerDir(p), "exec", "--", path, "--port", "0", "--unixsocket", r.socket,
		"--save", "", "--appendonly", "no", "--dir", l.dir); err != nil {
		return r, err
	}
	l.pods = append(l.pods, p)
	err = l.poll(ctx, "for Redis to answer", func() (bool, error) {
		answer, err := r.ask("SCRIPT LOAD \"" + redisLoop + "\"")
		var notYet *net.OpError
		if errors.As(err, &notYet) || errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err == nil && answer != "$40" {
			err = fmt.Errorf("giving Redis its script: it answered %q", answer)
		}
		return err == nil, err
	})
	return r, err
}

// request returns the line that asks for so many steps.
func (r redis) request(steps int) string {
	return fmt.Sprintf("EVALSHA %x 0 %d", sha1.Sum([]byte(redisLoop)), steps)
}

// ask sends a line and returns the first one of the answer.
func (r redis) ask(line string) (string, error) {
	conn, err := net.DialTimeout("unix", r.socket, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}

// calibrate returns of how many steps a request is that costs what one shall. It takes the median over some seconds: a CPU of
// a virtual machine was seen to be 1.7 times slower for seconds at a time, which is its neighbours' doing and no steal. By the
// least cost, 60 % of a CPU would then be more than it has.
func (l *lab) calibrate(ctx context.Context, r redis, p *pod) (int, error) {
	const few, many, times = 1000, 101000, 60
	costs := map[int][]time.Duration{}
	for range times {
		for _, steps := range []int{few, many} {
			cost, err := l.costOf(p, func() error {
				answer, err := r.ask(r.request(steps))
				if err == nil && answer != ":1" {
					err = fmt.Errorf("it answered %q", answer)
				}
				return err
			})
			if err != nil {
				return 0, fmt.Errorf("measuring how fast Redis is: %w", err)
			}
			costs[steps] = append(costs[steps], cost)
		}
		if err := Sleep(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	slices.Sort(costs[few])
	slices.Sort(costs[many])
	none, some := costs[few][times/2], costs[many][times/2]
	if some <= none {
		return 0, fmt.Errorf("measuring how fast Redis is: %d steps took %v of CPU, %d took %v", few, none, many, some)
	}
	step := float64(some-none) / (many - few)
	return max(few+int(float64(redisRequest-none)/step), 1), nil
}
