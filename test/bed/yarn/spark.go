package yarn

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// sparkSettings are the settings of all Spark applications: two executors of one CPU each. jars is Spark's directory of
// jars, and tmp a directory for temporary files, both as the cluster sees them.
func sparkSettings(jars, tmp string) properties {
	return properties{
		"spark.yarn.jars":                 "local:" + jars + "/*",
		"spark.executor.instances":        "2",
		"spark.executor.memory":           "512m",
		"spark.executor.memoryOverhead":   "256m",
		"spark.executor.extraJavaOptions": JavaOptions,
		"spark.yarn.am.memory":            "384m",
		"spark.yarn.am.memoryOverhead":    "128m",
		"spark.yarn.am.extraJavaOptions":  JavaOptions,
		"spark.ui.enabled":                "false",
		"spark.local.dir":                 tmp,
	}
}

// sparkArguments returns arguments of spark-submit, with further settings.
func sparkArguments(settings properties, conf map[string]string) []string {
	maps.Copy(settings, conf)
	args := []string{"--master", "yarn", "--driver-memory", "512m"}
	for name, value := range settings {
		args = append(args, "--conf", name+"="+value)
	}
	return args
}

// sparkHome returns the directory of Spark below dir, where test/bed/yarn/build.sh puts it.
func sparkHome(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	home := filepath.Join(dir, "pyspark")
	if _, err := os.Stat(home); err != nil {
		return "", fmt.Errorf("no Spark; run test/bed/yarn/build.sh spark: %w", err)
	}
	return home, nil
}

// sparkEnv returns the environment of spark-submit.
func sparkEnv(home string) []string {
	return []string{"SPARK_HOME=" + home, "PYTHONPATH=" + filepath.Dir(home), "SPARK_LAUNCHER_OPTS=" + JavaOptions,
		"SPARK_SUBMIT_OPTS=" + JavaOptions}
}

// shuffleProgram shuffles rows of 1 KB twice, and adds up what arrives. Its stages have 60, 40, 20 and 1 tasks. The %d
// are how many milliseconds tasks of the second stage sleep: the first 8, the others, the last one.
const shuffleProgram = `
from pyspark.sql import SparkSession, functions as f
spark = SparkSession.builder.appName("shuffle").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "40")
def sleep(ms):
    first = "monotonically_increasing_id() %% 8589934592 = 0"  # of a partition's rows
    return f"if({first}, reflect('java.lang.Thread', 'sleep', {ms}), '')"
rows = spark.range(0, 20000, 1, 60).selectExpr(
    "id", "id %% 4000 as k", "concat_ws('', transform(sequence(1, 30), i -> md5(string(id * 30 + i)))) as filling",
    sleep("200L") + " as slept")
sums = rows.repartition("k").groupBy("k").agg(
    f.sum("id").alias("s"), f.max("filling").alias("filling"), f.max("slept").alias("slept"))
task = "spark_partition_id()"
slow = sums.selectExpr("s", "filling", "slept", sleep(
    f"case when {task} < 8 then %dL when {task} < 39 then %dL else %dL end") + " as more")
last = slow.repartition(20, "s").selectExpr(
    "sum(s)", "count(*)", "min(length(filling))", "count(slept) + count(more)")
print("ANSWER", *last.collect()[0], flush=True)
`

// Sleeps say how long tasks of the second stage of [ShuffleProgram] sleep. It has 40 tasks.
type Sleeps struct{ First8, Others, Last time.Duration }

// ShuffleProgram returns a program for [Bed.Spark] that shuffles twice.
func ShuffleProgram(s Sleeps) string {
	return fmt.Sprintf(shuffleProgram, s.First8.Milliseconds(), s.Others.Milliseconds(), s.Last.Milliseconds())
}

// ShuffleAnswer is what [ShuffleProgram] prints.
const ShuffleAnswer = "ANSWER 199990000 4000 960 8000\n"

// Spark returns a Spark application of a Python program, with settings. Its driver runs in the client, and two
// executors in the cluster, one CPU each. dir is where test/bed/yarn/build.sh puts Spark.
func (b *Bed) Spark(ctx context.Context, dir, program string, conf map[string]string) (*exec.Cmd, error) {
	home, err := sparkHome(dir)
	if err != nil {
		return nil, err
	}
	script := b.in("program.py")
	if err := os.WriteFile(script, []byte(program), 0o644); err != nil {
		return nil, err
	}
	settings := sparkSettings(filepath.Join(home, "jars"), b.in("tmp"))
	settings["spark.driver.host"] = "localhost"
	args := append(sparkArguments(settings, conf), script)
	c := exec.CommandContext(ctx, filepath.Join(home, "bin/spark-submit"), args...)
	c.Env = append(b.Env(), sparkEnv(home)...)
	c.Dir = b.dir
	return c, nil
}

// sparkJars is the directory of Spark's jars, which all pods see.
const sparkJars = sharedDir + "/spark"

// ShareSpark copies Spark's jars to where all pods see them. dir is where test/bed/yarn/build.sh puts Spark.
func (p *Pods) ShareSpark(dir string) error {
	home, err := sparkHome(dir)
	if err != nil {
		return err
	}
	to := filepath.Join(p.o.Shared, "spark")
	if err := os.CopyFS(to, os.DirFS(filepath.Join(home, "jars"))); err != nil {
		return fmt.Errorf("copying Spark: %w", err)
	}
	return nil
}

// sparkOpens are the packages of Java that Spark's reflection needs.
var sparkOpens = strings.Fields("java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util " +
	"java.util.concurrent java.util.concurrent.atomic sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar")

// SparkSQL returns a Spark application that answers SQL queries, each with the lines of its rows, with settings. Its
// driver runs in the pod of the clients, whose address it needs, and two executors in the cluster, one CPU each. The
// jars are those of [Pods.ShareSpark].
func (p *Pods) SparkSQL(ctx context.Context, address, queries string, conf map[string]string) *exec.Cmd {
	settings := sparkSettings(sparkJars, "/tmp/spark")
	maps.Copy(settings, properties{
		"spark.driver.host":               address,
		"spark.yarn.stagingDir":           "file://" + sharedDir + "/spark-staging",
		"spark.sql.catalogImplementation": "in-memory",
		"spark.sql.warehouse.dir":         "/tmp/warehouse",
		// The native library of zstd, the default, needs libpthread.so.0, which the image lacks: the driver would not answer.
		"spark.shuffle.mapStatus.compression.codec": "lz4",
	})
	command := []string{"env", "HADOOP_CONF_DIR=" + confDir, "/opt/java/bin/java", "-Xmx512m"}
	command = append(command, strings.Fields(JavaOptions)...)
	for _, name := range sparkOpens {
		command = append(command, "--add-opens=java.base/"+name+"=ALL-UNNAMED")
	}
	command = append(command, "-cp", confDir+":"+sparkJars+"/*", "org.apache.spark.deploy.SparkSubmit")
	command = append(command, sparkArguments(settings, conf)...)
	return p.o.Exec(ctx, "client", append(command, "--class",
		"org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver", "spark-internal", "-e", queries)...)
}
