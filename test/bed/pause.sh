#!/bin/sh
# The first process of a pod. The kernel reaps children of a process that ignores SIGCHLD, and exec keeps that. So in a pod
# whose containers share process IDs, this process reaps orphans, as in other clusters.
trap '' CHLD
exec sleep 2147483647
