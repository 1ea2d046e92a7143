#!/usr/bin/env bash
# Copies Hadoop's jars into out/yarn/lib, and with "spark" Spark into out/yarn/spark. What is there in the same version
# stays. HADOOP names another version of Hadoop than that of pom.xml, to try it by hand; jobs of MapReduce's examples
# stay those of pom.xml.
#
#   [HADOOP=3.4.2] test/bed/yarn/build.sh [spark]
set -euo pipefail
cd "$(dirname "$0")/../../.."
spark=4.3.0
pom=test/bed/yarn/pom.xml
to=$PWD/out/yarn
mkdir -p "$to"
exec 9>"$to/.lock"
flock 9

# once runs a command that fills a directory, unless its stamp says that it is filled already.
once() { # STAMP DIRECTORY COMMAND...
	local stamp=$to/.$1 directory=$2
	shift 2
	[ -e "$stamp" ] && return
	rm -rf "$directory" "$to/.$1"-* # also the stamps of other versions
	"$@"
	touch "$stamp"
}

hadoop() {
	echo "getting Hadoop: half a minute on a new machine, 103 MB"
	mvn -q -B -Dstyle.color=never -f $pom ${HADOOP:+-Dhadoop=$HADOOP} dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$to/lib"
}
spark() {
	echo "getting Spark $spark: half a minute on a new machine, 520 MB"
	python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-cache-dir \
		--target "$to/spark" "pyspark==$spark"
}

once "hadoop-$(sha256sum <$pom | cut -c1-12)${HADOOP:-}" "$to/lib" hadoop
if [ "${1:-}" = spark ]; then
	once "spark-$spark" "$to/spark" spark
fi
