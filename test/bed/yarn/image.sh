#!/usr/bin/env bash
# Builds, in seconds, container images from the jars that build.sh has copied, the Java of this machine and busybox:
#
#   test/bed/yarn/image.sh         wl.test/hadoop:1 into out/yarn/hadoop.tar
#   test/bed/yarn/image.sh spark   wl.test/spark:1 into out/yarn/spark.tar, for executors
#   test/bed/yarn/image.sh guest   no image: prints, as flags of vmrun, what Hadoop needs in a virtual machine
set -euo pipefail
cd "$(dirname "$0")/../../.."
image=out/bin/image
[ "${1:-}" = guest ] || go build -o $image ./deploy/cmd/image

busybox=$(command -v busybox)
java=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
# Without what is for compilers and for screens.
mapfile -t runtime < <(find -L "$java/bin/java" "$java/release" "$java/conf" "$java/lib" -type f ! -name ct.sym ! -name src.zip \
	! -name 'libawt_xawt.so' ! -name 'libjawt.so' ! -name 'libsplashscreen.so' ! -name 'libatk-wrapper.so' | sort)
applets=$("$busybox" --list | grep -vx -e busybox -e find | sed 's|.*|/bin/&=busybox|' | paste -sd, -)
files=()
for file in "${runtime[@]}"; do files+=("$file=/opt/java${file#"$java"}"); done

# add adds the files below a directory, under the same names in the image.
add() { # DIRECTORY
	local file
	while read -r file; do files+=("$1$file=$file"); done < <(cd "$1" && find . -type f | sort | cut -c2-)
}
# jars adds a directory's jars to one of the image.
jars() { # DIRECTORY TO
	local file
	while read -r file; do files+=("$file=$2/${file##*/}"); done < <(find "$1" -maxdepth 1 -name '*.jar' | sort)
}
# libraries adds what programs and libraries are linked against.
libraries() { # FILE...
	local file
	while read -r file; do files+=("$file=$file"); done < <(ldd "$@" 2>/dev/null |
		awk '!/:$/ { for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' | grep -v "^$java/" | sort -u)
}
mapfile -t linked < <(printf '%s\n' "${runtime[@]}" | grep -E '/bin/[a-z]+$|\.so$')

# NodeManagers start containers with bash, and list their files with options that busybox's find does not have. Their
# LevelDB needs libstdc++, which is among the libraries of Java.
programs() {
	local program programs=("$(command -v bash)" "$(command -v find)" "$(command -v getconf)")
	for program in "${programs[@]}"; do files+=("$program=/bin/${program##*/}"); done
	libraries "${programs[@]}" "${linked[@]}"
}

hadoop() {
	files+=("$busybox=/bin/busybox")
	programs
	jars out/yarn/lib /opt/hadoop/lib
	add test/bed/yarn/rootfs
	$image -name wl.test/hadoop:1 -o out/yarn/hadoop.tar -user 1000 -entrypoint /opt/hadoop/bin/yarn \
		-links "$applets,/usr/bin/yarn=/opt/hadoop/bin/yarn" "${files[@]}"
}

# The native library of zstd in Spark's jars is linked against an old name of the C library.
spark() {
	local threads
	threads=$(ldconfig -p | awk '/libpthread\.so\.0 .*(x86-64|AArch64)/ && !found++ { print $NF }')
	jars out/yarn/spark/pyspark/jars /opt/spark/jars
	files+=("$busybox=/bin/busybox")
	libraries "${linked[@]}"
	if [ -n "$threads" ]; then files+=("$threads=$threads"); fi
	files+=(test/bed/yarn/rootfs/etc/passwd=/etc/passwd test/bed/yarn/rootfs/etc/group=/etc/group)
	add test/bed/yarn/rootfs-spark
	$image -name wl.test/spark:1 -o out/yarn/spark.tar -user 1000 -entrypoint /opt/spark/bin/executor \
		-links "$applets,/bin/find=busybox" "${files[@]}"
}

# A virtual machine has busybox under all its names. It needs the linker before what is linked, and files where there are
# links here.
guest() {
	local file
	programs
	printf '%s\n' "${files[@]/=\/bin\/find/=\/usr\/local\/bin\/find}" | awk '/=.*\/ld-/ { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }' |
		while read -r file; do printf -- '-file\n%s=%s\n' "$(readlink -f "${file%%=*}")" "${file#*=}"; done
}

"${1:-hadoop}"
