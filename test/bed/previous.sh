#!/usr/bin/env bash
# Builds the agent, the manager and the chart of the version before into out/bed/previous, with their images, for the tests
# that run two versions: the last release before HEAD, or without a release the commit below. The chart has the version
# "previous", which is the tag of the images.
set -euo pipefail
cd "$(dirname "$0")/../.."
# A clone may lack that commit: then it is the oldest one near.
previous=$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git rev-parse --quiet --verify 'be281c7^{commit}' ||
	git rev-list --max-count=150 HEAD | tail -1)
out=$PWD/out/bed/previous
stamp=$out/.$(git rev-parse --short "$previous")-$(sha256sum <test/bed/previous.sh | cut -c1-8)
mkdir -p "$out"
exec 9>"$out.lock" # levels that run side by side need it at the same time
flock 9
[ -e "$stamp" ] && exit
echo "building the version before, $previous"
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git archive "$previous" cmd internal api deploy docs go.mod go.sum | tar -x -C "$source"
rm -rf "$out"
mkdir -p "$out/bin" "$out/images"
cp -r "$source/deploy/chart" "$out/"
sed -i 's/^appVersion: .*/appVersion: previous/' "$out/chart/Chart.yaml"
CGO_ENABLED=0 GOGC=off GOMEMLIMIT=2GiB go -C "$source" build -ldflags "-s -w -X main.version=previous" -o "$out/bin/" \
	./cmd/waterline-agent ./cmd/waterline-manager
for name in agent manager; do
	user=0
	[ "$name" = agent ] || user=65532
	out/bin/image -name "waterline/$name:previous" -o "$out/images/$name-previous.tar" -user "$user" \
		-entrypoint "/waterline-$name" "$out/bin/waterline-$name=/waterline-$name"
done
touch "$stamp"
