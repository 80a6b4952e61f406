#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/multihost/small.sh PROGRAM [ROUNDS]: small all-reduces between two hosts, network namespaces of this machine,
# with one rank on each; their link is as fast as it can be. Where that is not allowed: a line that says so.
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
own_hosts "$0" "$@"

dir=$(mktemp -d)
trap 'sh "$tests/down.sh" "$dir"' EXIT
sh "$tests/up.sh" "$dir" 2
CZ_RANKS_OF_HOST=1 sh "$tests/run.sh" "$dir" "$program" "${2:-21}"
