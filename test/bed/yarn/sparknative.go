package yarn

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// SparkImage is the container image of Spark's executors on Kubernetes.
const SparkImage = "wl.test/spark:1"

// SparkSubmit returns the command spark-submit in a working directory, for the Kubernetes cluster of a kubeconfig file.
// dir is where test/bed/yarn/build.sh puts Spark.
func SparkSubmit(ctx context.Context, dir, kubeconfig, work string, args ...string) (*exec.Cmd, error) {
	home, err := sparkHome(dir)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, filepath.Join(home, "bin/spark-submit"), args...)
	c.Env = append(append(os.Environ(), sparkEnv(home)...), "KUBECONFIG="+kubeconfig, "TMPDIR="+work)
	c.Dir = work
	return c, nil
}
