#!/usr/bin/env bash
# make cluster and make cluster-down: a single-node Kubernetes on this machine with Waterline installed on it.
set -euo pipefail
cd "$(dirname "$0")/../.."
bed=out/bed/bin/bed
case "${1:-}" in
up)
	line=$($bed up out/bed/images/*.tar)
	eval "$line"
	trap '$bed down' ERR
	out/bin/helm upgrade --install waterline deploy/chart --namespace waterline-system --create-namespace \
		--set policy.mode=Enforce --set image.repository=waterline/agent,image.tag=dev,image.pullPolicy=Never --wait --timeout 90s >/dev/null
	out/bed/bin/kubectl get nodes,daemonsets -A
	cat <<E2

Waterline runs on a cluster of one node. Its images are wl.test/busybox:1, wl.test/ffmpeg:1 and what
$bed import brings in (imagePullPolicy: Never). To use it:

  $line
E2
	;;
down)
	[ -x $bed ] || go build -o $bed ./test/bed/cmd/bed
	$bed down
	;;
*)
	echo "usage: $0 up|down" >&2
	exit 2
	;;
esac
