#!/bin/sh
# Rewrites the replace lines of this module for a Kubernetes release:
#   ./update-modules.sh v1.36.3
# k8s.io/kubernetes cannot be required without them: its go.mod requires v0.0.0 of each staging module and replaces
# those modules by folders of its own tree, which do not exist outside of it. A second run changes nothing.
#
# This module requires Waterline's by its folder, for the tests in reference/. So its requirements are at least as new as
# Waterline's. The last step raises Waterline's to the same versions: a package that both modules compile from different
# versions, and each package that imports it, is compiled twice in make test. After an update there, run this again.
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

modules=$(mktemp)
trap 'rm -f "$modules"' EXIT
go list -m -f '{{if not .Main}}{{.Path}} {{.Version}}{{end}}' all | grep -v ^github.com/waterline-io/ | sort >"$modules"
go -C .. mod edit -json | sed -n 's/.*"Path": "\(.*\)",/\1/p' | sort | join - "$modules" | sed 's/ /@/' |
	xargs go -C .. get
go -C .. mod tidy
