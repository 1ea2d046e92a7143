#!/usr/bin/env bash
# Builds controllers of batch frameworks from their Go modules into out/bed/frameworks, with the charts of the same
# modules: for make test-frameworks.
set -euo pipefail
cd "$(dirname "$0")/../.."
kueue=v0.17.0
out=$PWD/out/bed/frameworks
stamp=$out/.kueue-$kueue
[ -e "$stamp" ] && exit
echo "building Kueue $kueue: seven minutes of CPU time on a new machine"
rm -rf "$out"
mkdir -p "$out"
GOBIN=$out/bin CGO_ENABLED=0 GOGC=off GOMEMLIMIT=2GiB go install -ldflags '-s -w' sigs.k8s.io/kueue/cmd/kueue@$kueue
cp -r "$(go env GOMODCACHE)/sigs.k8s.io/kueue@$kueue/charts/kueue" "$out/kueue"
chmod -R u+w "$out"
touch "$stamp"
