#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/14_fortran.sh EXAMPLE COUNTS MPIRUN…: stopped and resumed on each of the numbers of
# ranks in COUNTS, the example ends with the losses and the fingerprint of a run without a break on
# the first of them.
set -eu
example=$1 counts=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$@" "${counts%% *}" "$example" "$work/whole" 120 >"$work/whole.out"
last=0
for count in $counts; do
    last=$((last + 40))
    "$@" "$count" "$example" "$work/parts" $last >>"$work/parts.out"
done
"$@" 1 "$example" "$work/parts" 120 >>"$work/parts.out" # what is left, or nothing: its end again
cat "$work/parts.out"
grep loss "$work/whole.out" >"$work/whole.losses"
grep loss "$work/parts.out" | diff -u "$work/whole.losses" - || { echo "- without a break, + resumed"; exit 1; }
[ "$(wc -l <"$work/whole.losses")" = 6 ] || { echo "not 6 losses"; exit 1; }
for run in whole parts; do
    grep fingerprint "$work/$run.out" | tail -n 1 >"$work/$run.end"
done
grep -qE '^fingerprint [0-9A-F]{16} [0-9A-F]{16}$' "$work/whole.end" || { echo "no fingerprint"; exit 1; }
diff -u "$work/whole.end" "$work/parts.end" || { echo "- without a break, + resumed"; exit 1; }
