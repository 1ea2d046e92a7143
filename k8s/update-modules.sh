#!/bin/sh
# Rewrites the replace lines of this module for a Kubernetes release:
#   ./update-modules.sh v1.36.3
# k8s.io/kubernetes cannot be required without them: its go.mod asks for v0.0.0 of each staging module and replaces
# those with folders of its own tree, which do not exist outside of it. Running it twice changes nothing.
#
# Waterline itself is required by its folder, for the tests in reference/. So whatever it requires is at least as new here:
# after an update there, run this again.
set -eu
cd "$(dirname "$0")"
release=${1:-$(go list -m -f '{{.Version}}' k8s.io/kubernetes)}
staging=v0.${release#v1.}

go mod edit -require "k8s.io/kubernetes@$release"
gomod=$(go mod download -json "k8s.io/kubernetes@$release" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
for module in $(sed -n 's|^\t\(k8s\.io/[a-z-]*\) => ./staging/.*|\1|p' "$gomod"); do
	go mod edit -replace "$module=$module@$staging"
done
go mod tidy
