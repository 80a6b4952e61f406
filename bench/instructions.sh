#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/instructions.sh BENCH_STEP [LIST [STEPS]]: instructions of a sharded AdamW step of two
# thread ranks under callgrind, both ranks together, for a list of tensors (tiny; also gpt2, one,
# odd): in all, and what functions have themselves. Valgrind has no AVX-512, so the kernels are
# those of AVX2; it runs one thread at a time, so that waiting takes next to none.
set -eu
program=$1
list=${2:-tiny}
steps=${3:-20}
command -v valgrind >/dev/null || { echo "skipped: no valgrind (package valgrind)"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
yes '' | head -n "$steps" | valgrind --tool=callgrind --callgrind-out-file="$dir/out" --toggle-collect=cz_zero_step \
    "$program" --tensors "$list" --paced --small-pages >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
# One step more than was asked for: the first one, which has memory to get.
callgrind_annotate --auto=no --threshold=99 "$dir/out" | awk -v steps=$((steps + 1)) -v list="$list" '
    /PROGRAM TOTALS/ { gsub(",", "", $1); all = $1 }
    /^ *[0-9,]+ \(.*%\) .*:/ {
        gsub(",", "", $1)
        name = $0
        sub(/ \[[^]]*\]$/, "", name)
        sub(/.*:/, "", name)
        of[name] += $1
    }
    END {
        printf "%s: %.0f instructions in a step, both ranks\n", list, all / steps
        for (name in of)
            if (of[name] >= all / 100)
                printf "%12.0f  %4.1f %%  %s\n", of[name] / steps, 100 * of[name] / all, name | "sort -rn"
    }'
