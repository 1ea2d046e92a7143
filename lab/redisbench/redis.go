package redisbench

import (
	"bufio"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/sandbox"
)

const redisProgram = "redis-server"

// RequestCost is the CPU time of one request, on a CPU that Redis has to itself.
const RequestCost = 1500 * time.Microsecond

// redisLoop is the work of a request that computes: so many steps of a loop in Redis's own Lua.
const redisLoop = "local x = 0 for i = 1, tonumber(ARGV[1]) do x = x + i end return 1"

// redisFill makes two sets with the same members. Together they are larger than a last-level cache, and what follows in
// a set lies anywhere in memory.
const redisFill = "for i = 1, 400000 do redis.call('SADD', 'a', 'member:' .. i) " +
	"redis.call('SADD', 'b', 'member:' .. i) end return 1"

const redisTimeout = 20 * time.Second // of one connection while it is prepared

// redis is a Redis server that runs in a pod. It answers requests one after the other, on one thread.
type redis struct {
	*sandbox.Process
	socket  string
	lookups bool // requests look up members of sets; otherwise they compute
}

// findProgram finds an executable that an experiment needs.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w; install the package with it, on Debian or Ubuntu apt-get install %s",
			sandbox.ErrUnusable, err, name)
	}
	return path, nil
}

// startRedis starts Redis in a pod. It keeps nothing on disk and listens on a Unix socket only: the kernel's work for
// packets on the loopback interface is counted for no pod.
func startRedis(ctx context.Context, s *sandbox.Sandbox, p *sandbox.Pod, lookups bool) (r redis, err error) {
	r.lookups = lookups
	path, err := findProgram(redisProgram)
	if err != nil {
		return r, err
	}
	r.socket = filepath.Join(s.Dir(), "redis.sock")
	r.Process, err = s.Start(sandbox.Command{Name: "redis", Group: s.ContainerGroup(p), Program: []string{
		path, "--port", "0", "--unixsocket", r.socket, "--save", "", "--appendonly", "no", "--dir", s.Dir(),
	}})
	if err != nil {
		return r, err
	}
	s.AddLoad(p)
	if err := r.await(ctx, s); err != nil || !lookups {
		return r, err
	}
	answer, err := r.call("EVAL \"" + redisFill + "\" 0")
	if err == nil && answer != ":1" {
		err = fmt.Errorf("filling Redis: it answered %q", answer)
	}
	return r, err
}

// await waits until Redis has the script.
func (r redis) await(ctx context.Context, s *sandbox.Sandbox) error {
	return s.Poll(ctx, "for Redis to answer", func() (bool, error) {
		answer, err := r.call("SCRIPT LOAD \"" + redisLoop + "\"")
		var notYet *net.OpError
		if errors.As(err, &notYet) || errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err == nil && answer != "$40" {
			err = fmt.Errorf("loading the script into Redis: it answered %q", answer)
		}
		return err == nil, err
	})
}

// request returns the line of a request of so many steps.
func (r redis) request(steps int) string {
	if r.lookups {
		return fmt.Sprintf("SINTERCARD 2 a b LIMIT %d", steps)
	}
	return fmt.Sprintf("EVALSHA %x 0 %d", sha1.Sum([]byte(redisLoop)), steps)
}

// call sends a line and returns the first line of the answer.
func (r redis) call(line string) (string, error) {
	conn, err := net.DialTimeout("unix", r.socket, redisTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(redisTimeout)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}

// calibrate returns how many steps make a request that costs RequestCost. It takes the median over some seconds: a CPU
// of a virtual machine was seen to be 1.7 times slower for seconds at a time, which its neighbours cause and no steal
// shows. By the least cost, 60 % of a CPU would then be more than it has.
func (r redis) calibrate(ctx context.Context, s *sandbox.Sandbox, p *sandbox.Pod) (int, error) {
	const times = 60
	few, many := 1000, 101000
	if r.lookups {
		few, many = 100, 10100
	}
	costs := map[int][]time.Duration{}
	for range times {
		for _, steps := range []int{few, many} {
			cost, err := load.CPUTime(s, p, func() error {
				answer, err := r.call(r.request(steps))
				if err == nil && !strings.HasPrefix(answer, ":") {
					err = fmt.Errorf("it answered %q", answer)
				}
				return err
			})
			if err != nil {
				return 0, fmt.Errorf("measuring how fast Redis is: %w", err)
			}
			costs[steps] = append(costs[steps], cost)
		}
		if err := sandbox.Sleep(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	slices.Sort(costs[few])
	slices.Sort(costs[many])
	none, some := costs[few][times/2], costs[many][times/2]
	if some <= none {
		return 0, fmt.Errorf("measuring how fast Redis is: %d steps took %v of CPU, %d took %v", few, none, many, some)
	}
	step := float64(some-none) / float64(many-few)
	return max(few+int(float64(RequestCost-none)/step), 1), nil
}
