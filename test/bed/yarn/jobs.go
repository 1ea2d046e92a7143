package yarn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Job is a client that has submitted an application and waits for its end.
type Job struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements [io.Writer] for the client's output.
func (j *Job) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.Write(p)
}

// Output returns what the client has written so far.
func (j *Job) Output() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.String()
}

// StartJob starts a job's client.
func StartJob(c *exec.Cmd) (*Job, error) {
	j := &Job{cmd: c, done: make(chan struct{})}
	c.Stdout, c.Stderr = j, j
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("starting a job: %w", err)
	}
	go func() {
		j.err = c.Wait()
		close(j.done)
	}()
	return j, nil
}

var applicationID = regexp.MustCompile(`Submitted application (application_\d+_\d+)`)

// ID returns the id of the job's application, as soon as the client says it.
func (j *Job) ID(ctx context.Context) (string, error) {
	var id string
	err := Eventually(ctx, func(context.Context) error {
		if match := applicationID.FindStringSubmatch(j.Output()); match != nil {
			id = match[1]
			return nil
		}
		return errors.New("the client has not submitted an application")
	})
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, j.Output())
	}
	return id, nil
}

// Done returns a channel that is closed when the job has ended.
func (j *Job) Done() <-chan struct{} { return j.done }

// Wait returns when the job has ended. A job that failed is an error, with the last lines of the client's output.
func (j *Job) Wait(ctx context.Context) error {
	select {
	case <-j.done:
	case <-ctx.Done():
		return fmt.Errorf("waiting for a job: %w: %s", ctx.Err(), j.Output())
	}
	if j.err != nil {
		const most = 40
		lines := strings.SplitAfter(j.Output(), "\n")
		return fmt.Errorf("a job failed: %w:\n%s", j.err, strings.Join(lines[max(len(lines)-most, 0):], ""))
	}
	return nil
}

// Counter returns a counter of a MapReduce job that has ended, such as "Killed map tasks". MapReduce prints no counter
// that is 0.
func (j *Job) Counter(name string) int {
	match := regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(name) + `=(\d+)$`).FindStringSubmatch(j.Output())
	if match == nil {
		return 0
	}
	n, _ := strconv.Atoi(match[1])
	return n
}

// Jobs makes the commands that submit a cluster's jobs.
type Jobs struct {
	run func(ctx context.Context, class string, args ...string) *exec.Cmd
	// lib has Hadoop's jars, and dir is for what jobs read and write. The cluster sees them under the other names.
	lib, libThere, dir, dirThere string
}

// Sleep returns a MapReduce job whose maps and reduces sleep. options are of Hadoop, such as -Dname=value.
func (j Jobs) Sleep(ctx context.Context, maps, reduces int, each time.Duration, options ...string) *exec.Cmd {
	ms := strconv.FormatInt(each.Milliseconds(), 10)
	return j.run(ctx, "org.apache.hadoop.mapreduce.SleepJob", append(options, "-m", strconv.Itoa(maps), "-r",
		strconv.Itoa(reduces), "-mt", ms, "-rt", ms)...)
}

// Shell returns a DistributedShell job: containers of 256 MiB that run a shell command on nodes with a label.
func (j Jobs) Shell(ctx context.Context, command string, containers int, label string) (*exec.Cmd, error) {
	return j.shell(ctx, command, containers, "-node_label_expression", label)
}

// ShellIn returns a DistributedShell job in a queue, whose default label it has.
func (j Jobs) ShellIn(ctx context.Context, queue, command string, containers int) (*exec.Cmd, error) {
	return j.shell(ctx, command, containers, "-queue", queue)
}

func (j Jobs) shell(ctx context.Context, command string, containers int, more ...string) (*exec.Cmd, error) {
	jars, _ := filepath.Glob(filepath.Join(j.lib, "hadoop-yarn-applications-distributedshell-*.jar"))
	if len(jars) != 1 {
		return nil, fmt.Errorf("%s has %d jars of DistributedShell, not 1; run test/bed/yarn/build.sh", j.lib, len(jars))
	}
	return j.run(ctx, "org.apache.hadoop.yarn.applications.distributedshell.Client",
		append(more, "-jar", filepath.Join(j.libThere, filepath.Base(jars[0])),
			"-shell_command", command, "-num_containers", strconv.Itoa(containers), "-container_memory", "256",
			"-master_memory", "256", "-timeout", "600000")...), nil
}

// ShellMaster returns the command of a container that is the master of a DistributedShell job. With it, a job can be
// submitted without Hadoop's client.
func (b *Bed) ShellMaster(command string, containers int) string {
	// It reads the command as DataInput.readUTF does: its length in two bytes comes first.
	return fmt.Sprintf("printf '\\%03o\\%03o%s' > shellCommands; exec %s/bin/java "+
		JavaOptions+" -Xmx128m -cp '%s' "+
		"org.apache.hadoop.yarn.applications.distributedshell.ApplicationMaster --container_type GUARANTEED "+
		"--container_memory 256 --container_vcores 1 --num_containers %d --priority 0 > <LOG_DIR>/master.log 2>&1",
		len(command)>>8, len(command)&0xff, command, b.java, b.layout.classpath(":"), containers)
}

// rowSize is the length of a row of TeraSort: a key of 10 bytes and a value.
const rowSize, keySize = 100, 10

// Rows is the input of a sort, in a directory.
type Rows struct {
	Dir   string // as this process sees it
	there string // as the cluster sees it
	count int
	sum   uint64 // of the rows' checksums, in any order
}

// NewRows makes rows with keys at random, in as many files. A map reads one file.
func (j Jobs) NewRows(name string, count, files int) (Rows, error) {
	r := Rows{Dir: filepath.Join(j.dir, name), there: filepath.Join(j.dirThere, name), count: count}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return r, err
	}
	random := rand.NewChaCha8([32]byte{})
	for f := range files {
		content := make([]byte, (count*(f+1)/files-count*f/files)*rowSize)
		for row := range slices.Chunk(content, rowSize) {
			_, _ = random.Read(row[:keySize]) // it never fails
			binary.BigEndian.PutUint64(row[keySize:], uint64(f))
			r.sum += uint64(crc32.ChecksumIEEE(row))
		}
		if err := os.WriteFile(filepath.Join(r.Dir, fmt.Sprintf("part-%05d", f)), content, 0o644); err != nil {
			return r, fmt.Errorf("writing rows to sort: %w", err)
		}
	}
	return r, nil
}

// Sort returns a MapReduce job that sorts rows into another directory. Every map's output goes to every reduce.
//
// Its simple partitioner goes by the first bytes of keys. With the other one, tasks were seen not to find the file of
// partitions.
func (j Jobs) Sort(ctx context.Context, r Rows, reduces int, options ...string) *exec.Cmd {
	return j.run(ctx, "org.apache.hadoop.examples.terasort.TeraSort", append(options,
		"-Dmapreduce.terasort.simplepartitioner=true", "-Dmapreduce.job.reduces="+strconv.Itoa(reduces),
		r.there, r.there+sorted)...)
}

// sorted ends the name of the directory of the sort's output.
const sorted = "-sorted"

// Check returns an error unless the sort's output has the same rows in order.
func (r Rows) Check() error {
	files, _ := filepath.Glob(filepath.Join(r.Dir+sorted, "part-r-*"))
	slices.Sort(files)
	var last []byte
	var sum uint64
	count := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading sorted rows: %w", err)
		}
		if len(content)%rowSize != 0 {
			return fmt.Errorf("%s has %d bytes, which is no number of rows", file, len(content))
		}
		for row := range slices.Chunk(content, rowSize) {
			if bytes.Compare(last, row[:keySize]) > 0 {
				return fmt.Errorf("%s: key %x comes after %x", file, row[:keySize], last)
			}
			last = row[:keySize]
			sum += uint64(crc32.ChecksumIEEE(row))
			count++
		}
	}
	if count != r.count || sum != r.sum {
		return fmt.Errorf("%d rows with sum %x went in; %d with sum %x came out into %q", r.count, r.sum, count, sum, files)
	}
	return nil
}
