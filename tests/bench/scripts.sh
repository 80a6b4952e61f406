#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/bench/scripts.sh SOURCE PROGRAMS: the benchmarks run and leave results, and two files of
# results are compared. Figures are no matter here.
set -eu
source=$1
programs=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*" >&2; exit 1; }

# result NAME RATIO SPREAD
result() { echo "{\"name\": \"$1\", \"bytes\": 64, \"ranks\": 2, \"ratio\": $2, \"spread\": $3, \"against\": \"x\"},"; }
# compare EXPECTED-STATUS WORD
compare() {
    status=0
    sh "$source/scripts/bench-compare.sh" "$work/new" "$work/old" >"$work/said" 2>&1 || status=$?
    [ "$status" = "$1" ] || fail "compare ended with $status, not $1: $(cat "$work/said")"
    grep -q "$2" "$work/said" || fail "compare did not say '$2': $(cat "$work/said")"
}
{ result a 0.90 0.02; result b 0.50 0.30; result gone 1 0; } >"$work/old"
{ result a 0.89 0.02; result b 0.30 0.02; result fresh 1 0; } >"$work/new"
compare 0 '^0 worse, 2 within their spread, 1 new, 1 no longer measured$'
{ result a 0.80 0.02; result b 0.90 0.02; } >"$work/new"
compare 1 '^worse   a .* 0.80, was 0.90'
compare 1 '^better  b .* 0.90, was 0.50'
rm "$work/new"
compare 2 "no results in"

[ -n "$programs" ] || exit 0
sh "$source/scripts/bench.sh" --quick "$programs" "$work/out" >"$work/said" || fail "bench.sh: $(cat "$work/said")"
for name in 'stream adam' all_reduce broadcast; do
    grep -q "^{\"name\": \"$name\", .*\"limit\": [0-9]" "$work/out/results.json" || fail "no results of $name"
done
sh "$source/scripts/bench-compare.sh" "$work/out/results.json" "$work/out/results.json" >"$work/said"
grep -q '^0 worse, [1-9][0-9]* within their spread, 0 new, 0 no' "$work/said" || fail "$(cat "$work/said")"
