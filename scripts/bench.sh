#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench.sh FOLDER [MPIRUN…]: run every benchmark that was built there, one after the other; those in
# its folder mpi on two processes; not those in multihost, which have a script of their own.
set -eu
folder=$1
shift
find "$folder" \( -name CMakeFiles -o -name multihost \) -prune -o -type f -perm -u+x -print | LC_ALL=C sort |
while read -r program; do
    echo "== ${program#"$folder"/}"
    case $program in
    "$folder"/mpi/*) "$@" -n 2 "$program" </dev/null ;;
    *) "$program" </dev/null ;;
    esac
done
