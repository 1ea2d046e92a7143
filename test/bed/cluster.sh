#!/usr/bin/env bash
# make cluster and make cluster-down: a single-node Kubernetes on this machine with Waterline installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
bed=out/bed/bin/bed
case "${1:-}" in
up)
	line=$($bed up out/bed/images/*.tar)
	eval "$line"
	trap '$bed down' ERR
	out/bed/bin/kubectl create namespace waterline-system >/dev/null
	out/bed/bin/kubectl label namespace waterline-system pod-security.kubernetes.io/enforce=privileged >/dev/null
	out/bin/helm upgrade --install waterline deploy/chart --namespace waterline-system \
		--set policy.mode=Enforce --set image.repository=waterline/agent,image.tag=dev,image.pullPolicy=Never --wait --timeout 90s >/dev/null
	out/bed/bin/kubectl get nodes,daemonsets -A
	cat <<E2

Waterline runs on a cluster of one node. There is no registry: pods use wl.test/busybox:1 and wl.test/ffmpeg:1
with imagePullPolicy: Never, and $bed import adds other images. To use the cluster:

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
