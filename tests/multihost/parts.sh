#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/multihost/parts.sh PROGRAM: trainings in parts (tests/mpi/parts.c) on two and on three hosts
# with two ranks each, in blocks and in turn, have the bits of a plain loop. Exits with 77 (skipped)
# where it cannot be tried.
set -eu
program=$(realpath "$1")
here=$(dirname "$0")
. "$here/hosts.sh"

command -v mpirun.openmpi >/dev/null || skip "no mpirun.openmpi (package openmpi-bin)"
without=$(hosts_allowed) || skip "$without"
own_hosts "$0" "$@"

dir=$(mktemp -d)
trap 'sh "$here/down.sh" "$dir"' EXIT
sh "$here/up.sh" "$dir" 3

# run COUNT PLACEMENT LEVEL: on so many of the hosts
run() {
    echo "$1 hosts, by $2, $3"
    CZ_HOSTS=$1 sh "$here/run.sh" "$dir" --map-by "$2" "$program" "$3" >"$dir/out" 2>&1 || {
        cat "$dir/out" >&2
        exit 1
    }
}

run 2 node funneled
run 3 slot funneled
run 3 node multiple
