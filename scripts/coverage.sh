#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/coverage.sh BUILD [LEAST]: how many lines of src/ the tests in BUILD, configured with
# CZERO_COVERAGE=ON, have run so far, folder by folder. Ends with 1 if it is less than LEAST per
# cent in all.
set -eu
build=$1
least=${2:-0}
report=$(mktemp)
trap 'rm -f "$report"' EXIT
gcovr --root . --filter src/ --exclude-unreachable-branches --gcov-ignore-parse-errors -j "$(nproc)" \
    --csv "$report" "$build" >/dev/null
awk -F , -v least="$least" '
    NR > 1 {
        split($1, path, "/")
        all[path[2]] += $2; run[path[2]] += $3; total += $2; covered += $3
    }
    END {
        for (part in all)
            printf "%-12s %5d of %5d lines, %5.1f %%\n", part, run[part], all[part], 100 * run[part] / all[part] | "sort"
        close("sort")
        if (!total) { print "coverage: no lines were counted"; exit 1 }
        printf "coverage: %d of %d lines of src/, %.1f %%\n", covered, total, 100 * covered / total
        exit 100 * covered / total < least
    }' "$report"
