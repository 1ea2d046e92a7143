#!/usr/bin/env bash
# Copies Trino's jars into out/trino/lib and compiles the launcher into out/trino/launcher. What is there in the same
# version stays.
#
#   test/bed/trino/build.sh
set -euo pipefail
cd "$(dirname "$0")/../../.."
from=test/bed/trino
to=$PWD/out/trino
mkdir -p "$to"
exec 9>"$to/.lock"
flock 9
stamp=$to/.trino-$(cat $from/pom.xml $from/Launcher.java | sha256sum | cut -c1-12)
[ -e "$stamp" ] && exit
rm -rf "$to/lib" "$to/launcher"
echo "getting Trino: a minute on a new machine, 93 MB"
mvn -q -B -Dstyle.color=never -f $from/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$to/lib"
java -jar "$to"/lib/ecj-*.jar -17 -nowarn -d "$to/launcher" -cp "$(echo "$to"/lib/trino-main-*.jar)" $from/Launcher.java
rm "$to"/lib/ecj-*.jar
touch "$stamp"
