#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/output.sh FILE RANKS COMMAND…: with each of these numbers of ranks (CZERO_RANKS;
# "own": as it is) the command ends well and prints the lines of FILE and no others, in any order,
# as ranks print when they come to it.
set -eu
wanted=$1
counts=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for count in $counts; do
    if [ "$count" != own ]; then
        export CZERO_RANKS="$count"
    fi
    "$@" >"$work/printed"
    LC_ALL=C sort "$work/printed" >"$work/lines"
    LC_ALL=C sort "$wanted" | diff -u - "$work/lines" ||
        { echo "+ was printed${CZERO_RANKS:+ by $CZERO_RANKS ranks}, - is wanted"; exit 1; }
done
cat "$work/printed"
