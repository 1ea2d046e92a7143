package yarn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// Growth is what the first attempts of a job's maps do: each holds another MiB again and again, up to a maximum, until
// [Growth.End]. They are quick at first. Near the guard's mark they take a second for each MiB, so that the guard has
// longer than it ever needs, whatever else the machine does.
type Growth struct {
	Dir   string // on this machine
	There string // the same as the maps see it
	Java  string // the maps' own Java
	Stat  string // memory.stat of the cgroup that the maps share, as they see it
	Each  int    // the maximum, in MiB
	Quick int    // from so many bytes in the cgroup on, each MiB takes a second
}

const growing = `#!/bin/bash
case "$*" in *_m_*_0\ *)
  i=0
  until [ -e %[1]s/go ]; do
    if [ $i -lt %[2]d ]; then
      printf -v "held$i" %%1048576s
      i=$((i + 1))
    fi
    while read -r key value; do
      case $key in total_rss | anon) used=$value ;; esac
    done < %[4]s
    if [ $used -lt %[3]d ]; then sleep 0.1; else sleep 1; fi
  done
esac
exec %[5]s "$@"
`

// Begin prepares a Java that does so, and returns the option of the job that gives it to its maps.
func (g Growth) Begin() (option string, err error) {
	text := fmt.Sprintf(growing, g.There, g.Each, g.Quick, g.Stat, g.Java)
	return "-Dmapreduce.map.env=JAVA_HOME=" + g.There, errors.Join(os.RemoveAll(g.Dir),
		os.MkdirAll(filepath.Join(g.Dir, "bin"), 0o755), os.WriteFile(filepath.Join(g.Dir, "bin/java"), []byte(text), 0o755))
}

// End lets the maps go on.
func (g Growth) End() error { return os.WriteFile(filepath.Join(g.Dir, "go"), nil, 0o644) }

// OOMKills returns how many processes the kernel killed because of a cgroup's memory limit. read reads its files.
func OOMKills(v cgroup.Version, read func(file string) ([]byte, error)) (n int, err error) {
	file := "memory.events"
	if v == cgroup.V1 {
		file = "memory.oom_control"
	}
	content, err := read(file)
	if err != nil {
		return 0, err
	}
	_, text, found := strings.Cut("\n"+string(content), "\noom_kill ")
	if _, err := fmt.Sscan(text, &n); !found || err != nil {
		return 0, fmt.Errorf("%s does not count kills: %q", file, content)
	}
	return n, nil
}
