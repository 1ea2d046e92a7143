#!/usr/bin/env bash
# Builds the agent, the manager and the chart of the version before into out/bed/previous, for the tests that run two
# versions side by side: the last release before HEAD, or without a release the commit below.
set -euo pipefail
cd "$(dirname "$0")/../.."
# A clone may lack that commit: then it is the oldest one near.
previous=$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git rev-parse --quiet --verify 'be281c7^{commit}' ||
	git rev-list --max-count=150 HEAD | tail -1)
out=$PWD/out/bed/previous
stamp=$out/.$(git rev-parse --short "$previous")
[ -e "$stamp" ] && exit
echo "building the version before, $previous"
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git archive "$previous" cmd internal api deploy docs go.mod go.sum | tar -x -C "$source"
rm -rf "$out"
mkdir -p "$out/bin"
cp -r "$source/deploy/chart" "$out/"
CGO_ENABLED=0 GOGC=off GOMEMLIMIT=2GiB go -C "$source" build -ldflags "-s -w -X main.version=previous" -o "$out/bin/" \
	./cmd/waterline-agent ./cmd/waterline-manager
touch "$stamp"
