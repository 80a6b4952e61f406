#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/multihost/all_reduce.sh PROGRAM [MIB [ROUNDS]]: all-reduce on two hosts, network namespaces of this machine,
# whose link is shaped to 1 Gbit/s each way, with one rank a host and with two. Where that is not allowed: a line
# that says so.
set -eu
tests=$(dirname "$0")/../../tests/multihost
. "$tests/hosts.sh"

skip() {
    echo "skipped: $*"
    exit 0
}

program=$(realpath "$1")
command -v mpirun.openmpi >/dev/null || skip "no mpirun.openmpi (package openmpi-bin)"
without=$(hosts_allowed) || skip "$without"
command -v tc >/dev/null || skip "no tc command (package iproute2)"
own_hosts "$0" "$@"

dir=$(mktemp -d)
trap 'sh "$tests/down.sh" "$dir"' EXIT
sh "$tests/up.sh" "$dir" 2
for host in czh0 czh1; do
    tc -n $host qdisc add dev cz0 root tbf rate 1gbit burst 256kb latency 50ms ||
        skip "links cannot be shaped here (tc: tbf)"
done
for ranks in 1 2; do
    CZ_RANKS_OF_HOST=$ranks sh "$tests/run.sh" "$dir" "$program" "${2:-64}" "${3:-7}"
done
