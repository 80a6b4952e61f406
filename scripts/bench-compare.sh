#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench-compare.sh [NEW [OLD]]: ratios of build/bench/results.json beside those of the
# newest release in bench/history. Only ratios: times are of one machine and one hour. A ratio is
# worse or better where it moved by more than the larger of both spreads, and by more than a
# twentieth. Exit status: 0 nothing is worse, 1 something is.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
new=${1:-$root/build/bench/results.json}
old=${2:-$(find "$root/bench/history" -name "*.json" 2>/dev/null | sort -V | tail -n 1)}
for file in "$new" "$old"; do
    [ -r "$file" ] || { echo "bench-compare: no results in '$file' (make bench makes them)" >&2; exit 2; }
done
echo "$new beside $old"
awk '
# The value of a key of a line; each result has a line of its own.
function value(key,    text) {
    if (!match($0, "\"" key "\": *(\"[^\"]*\"|[^,}]*)"))
        return ""
    text = substr($0, RSTART, RLENGTH)
    sub("^\"" key "\": *", "", text)
    gsub("\"", "", text)
    return text
}
function larger(a, b) { return a > b ? a : b }
value("ratio") == "" { next }
{ key = value("name") "|" value("bytes") "|" value("ranks") }
NR == FNR { ratio[key] = value("ratio") + 0; spread[key] = value("spread") + 0; next }
!(key in ratio) { fresh++; next }
{
    seen[key] = 1
    now = value("ratio") + 0
    room = larger(larger(spread[key], value("spread") + 0), ratio[key] / 20)
    verdict = now < ratio[key] - room ? "worse" : now > ratio[key] + room ? "better" : ""
    if (verdict == "") { same++; next }
    if (verdict == "worse") worse++
    printf "%-6s  %-26s %12s bytes %2s ranks  %.2f, was %.2f (spreads %.2f, %.2f)\n", verdict, value("name"),
        value("bytes"), value("ranks"), now, ratio[key], value("spread"), spread[key]
}
END {
    for (key in ratio) gone += !(key in seen)
    printf "%d worse, %d within their spread, %d new, %d no longer measured\n", worse, same, fresh, gone
    exit worse > 0
}' "$old" "$new"
