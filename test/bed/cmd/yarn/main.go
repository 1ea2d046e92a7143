// Command yarn runs a YARN cluster of the test bed until it is interrupted, and commands inside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/waterline-io/waterline/test/bed/yarn"
)

const usage = `yarn up [-nodes N] [-memory MIB] [-vcores N] [-ha]   run a ResourceManager and NodeManagers until ^C
yarn exec COMMAND...                                 run a command inside, where their host names are known
yarn java CLASS ARGUMENTS...                         run a class of Hadoop inside, such as a job's client`

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "yarn:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("usage:\n" + usage)
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	home := filepath.Join(filepath.Dir(self), "../yarn") // out/yarn
	switch args[0] {
	case "up":
		return up(home, args[1:])
	case "exec", "java":
		if len(args) < 2 {
			return 2, errors.New("usage:\n" + usage)
		}
		return inside(home, args[0] == "java", args[1:])
	}
	return 2, errors.New("usage:\n" + usage)
}

func options(home string, ha bool) yarn.Options {
	return yarn.Options{
		Lib: filepath.Join(home, "lib"), Dir: filepath.Join(home, "run"), Logs: filepath.Join(home, "log"), HA: ha,
	}
}

func pidFile(home string) string { return filepath.Join(home, "init.pid") }

func up(home string, args []string) (int, error) {
	flags := flag.NewFlagSet("yarn up", flag.ContinueOnError)
	nodes := flags.Int("nodes", 2, "how many NodeManagers")
	memory := flags.Int("memory", 2048, "what each offers, in MiB")
	vcores := flags.Int("vcores", 4, "what each offers")
	ha := flags.Bool("ha", false, "two ResourceManagers and ZooKeeper")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	in, code, err := yarn.Enter(options(home, *ha).Dir, func(pid int) error {
		return os.WriteFile(pidFile(home), []byte(strconv.Itoa(pid)), 0o644)
	})
	if !in || err != nil {
		return code, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bed, err := yarn.Up(options(home, *ha))
	if err != nil {
		return 1, err
	}
	for i := 1; i <= *nodes; i++ {
		if err := bed.AddNode(i, *memory, *vcores); err != nil {
			return 1, err
		}
	}
	soon, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := bed.Ready(soon, *nodes); err != nil {
		return 1, fmt.Errorf("%w%s", err, bed.LogTails())
	}
	self := filepath.Join(filepath.Base(filepath.Dir(home)), "bin/yarn")
	fmt.Printf(`
YARN runs with %d NodeManagers until ^C. Logs are in %s. From another terminal, as root:

  a job that sleeps     %[3]s java org.apache.hadoop.mapreduce.SleepJob -m 4 -r 1 -mt 20000
  the nodes             %[3]s exec curl -s %[4]s/ws/v1/cluster/nodes
  Hadoop's own command  %[3]s java org.apache.hadoop.yarn.client.cli.NodeCLI -list
`, *nodes, options(home, *ha).Logs, self, yarn.RMURL(1))
	<-ctx.Done()
	return 0, nil
}

// inside runs a command, or a class of Hadoop, inside the cluster that is up.
func inside(home string, java bool, args []string) (int, error) {
	pid, err := os.ReadFile(pidFile(home))
	if err != nil {
		return 1, fmt.Errorf("no YARN is up; make yarn brings it up: %w", err)
	}
	// Another process may have the number by now.
	line, err := os.ReadFile(filepath.Join("/proc", string(pid), "cmdline"))
	if err != nil || !strings.HasSuffix(strings.SplitN(string(line), "\x00", 2)[0], "yarn") {
		return 1, errors.New("no YARN is up; make yarn brings it up")
	}
	bed, err := yarn.Attach(options(home, false))
	if err != nil {
		return 1, err
	}
	if java {
		args = bed.Command(context.Background(), args[0], args[1:]...).Args
	}
	c := exec.Command("nsenter", append([]string{"-t", string(pid), "-m", "-n", "-p", "-u", "--"}, args...)...)
	c.Stdin, c.Stdout, c.Stderr, c.Env = os.Stdin, os.Stdout, os.Stderr, bed.Env()
	var failed *exec.ExitError
	if err := c.Run(); errors.As(err, &failed) {
		return failed.ExitCode(), nil
	} else if err != nil {
		return 1, err
	}
	return 0, nil
}
