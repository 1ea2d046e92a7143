#!/usr/bin/env bash
# Builds, in two seconds, the container image wl.test/hadoop:1 into out/yarn/hadoop.tar: the jars that build.sh has copied,
# the Java of this machine, busybox, and the files in rootfs. NodeManagers start containers with bash, and list their
# files with options that busybox's find does not have.
set -euo pipefail
cd "$(dirname "$0")/../../.."
image=out/bin/image archive=out/yarn/hadoop.tar
go build -o $image ./deploy/image

busybox=$(command -v busybox)
programs=("$(command -v bash)" "$(command -v find)" "$(command -v getconf)")
java=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
# Without what is for compilers and for screens.
mapfile -t runtime < <(find -L "$java/bin/java" "$java/release" "$java/conf" "$java/lib" -type f ! -name ct.sym ! -name src.zip \
	! -name 'libawt_xawt.so' ! -name 'libjawt.so' ! -name 'libsplashscreen.so' ! -name 'libatk-wrapper.so' | sort)
mapfile -t jars < <(find out/yarn/lib -name '*.jar' | sort)
mapfile -t own < <(cd test/bed/yarn/rootfs && find . -type f | sort | cut -c2-)

# The NodeManager's LevelDB needs libstdc++, which is among the libraries of Java.
mapfile -t linked < <(printf '%s\n' "${programs[@]}" "${runtime[@]}" | grep -E '/bin/[a-z]+$|\.so$')
mapfile -t libraries < <(ldd "${linked[@]}" 2>/dev/null |
	awk '!/:$/ { for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' | grep -v "^$java/" | sort -u)

files=("$busybox=/bin/busybox")
for file in "${programs[@]}"; do files+=("$file=/bin/${file##*/}"); done
for file in "${runtime[@]}"; do files+=("$file=/opt/java${file#"$java"}"); done
for file in "${jars[@]}"; do files+=("$file=/opt/hadoop/lib/${file##*/}"); done
for file in "${libraries[@]}"; do files+=("$file=$file"); done
for file in "${own[@]}"; do files+=("test/bed/yarn/rootfs$file=$file"); done
applets=$("$busybox" --list | grep -vx -e busybox -e find | sed 's|.*|/bin/&=busybox|' | paste -sd, -)
$image -name wl.test/hadoop:1 -o $archive -user 1000 -entrypoint /opt/hadoop/bin/yarn \
	-links "$applets,/usr/bin/yarn=/opt/hadoop/bin/yarn" "${files[@]}"
