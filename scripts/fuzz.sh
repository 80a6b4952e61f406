#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/fuzz.sh BUILD RUNS [NAME…]: so many inputs (20s: as many as 20 seconds take) for each fuzz
# target in BUILD/tests/fuzz, or for those named. What they have learned stays in BUILD/corpus/NAME,
# an input that breaks a target is BUILD/corpus/NAME-…: made smaller (-minimize_crash=1) it goes to
# tests/fuzz/corpus/NAME, which each target begins with.
set -eu
build=$1
case $2 in
*s) limit=-max_total_time=${2%s} ;;
*) limit=-runs=$2 ;;
esac
runs=$2
shift 2
words=$(dirname "$0")/../tests/fuzz/words.dict
stored=$(dirname "$0")/../tests/fuzz/corpus

if [ $# = 0 ]; then
    for target in "$build"/tests/fuzz/fuzz_*; do
        if [ -f "$target" ] && [ -x "$target" ]; then set -- "$@" "$(basename "$target")"; fi
    done
fi
[ $# -gt 0 ] || { echo "fuzz: no targets in $build/tests/fuzz" >&2; exit 1; }
for name in "$@"; do
    corpus=$build/corpus/$name
    mkdir -p "$corpus"
    "$build/tests/fuzz/replay_$name" --seeds "$corpus"
    echo "fuzz: $name, $runs inputs; see $corpus.log"
    if ! "$build/tests/fuzz/$name" "$limit" -max_len=4096 -timeout=20 -dict="$words" \
        -print_final_stats=1 -artifact_prefix="$corpus-" "$corpus" "$stored/$name" >"$corpus.log" 2>&1; then
        tail -n 60 "$corpus.log"
        exit 1
    fi
    grep -E 'DONE|^Done|stat::(average|new|peak|slowest)' "$corpus.log"
done
