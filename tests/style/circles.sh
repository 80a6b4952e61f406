#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/style/circles.sh ROOT OBJECTS: calls of src/ are ordered as its includes are (layers.sh),
# and within a folder no file calls one that calls it back, by way of others neither. OBJECTS has
# what src/ was compiled to.
set -eu
cd "$1"
objects=$2
order=$(sed -n '/^order="/,/"$/p' tests/style/layers.sh | tr -d '"' | sed 's/order=//')
folders=$(echo $order)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# FILE U|D SYMBOL: what each file wants and what it has. Objects of files that are gone may lie
# there still.
find src -name '*.c' ! -path 'src/device/cpu/kernels/*' | LC_ALL=C sort | while read -r file; do
    [ ! -f "$objects/$file.o" ] || echo "$objects/$file.o"
done | xargs nm -A | sed -n -e "s|^$objects/\(.*\)\.o: *U \([A-Za-z_0-9]*\)\$|\1 U \2|p" \
    -e "s|^$objects/\(.*\)\.o:[0-9a-f]* [TDBR] \([A-Za-z_0-9]*\)\$|\1 D \2|p" >"$work/symbols"

# CALLER CALLED SYMBOL
awk '$2 == "D" { home[$3] = $1; next }
     { wants[++count] = $0 }
     END { for (i = 1; i <= count; i++) { split(wants[i], w, " ")
               if (home[w[3]] && home[w[3]] != w[1]) print w[1], home[w[3]], w[3] } }' "$work/symbols" >"$work/calls"
[ -s "$work/calls" ] || { echo "no calls found below $objects"; exit 1; }

bad=0
awk -v order="$(echo $order)" '
BEGIN { count = split(order, names, " "); for (i = 1; i <= count; i++) rank[names[i]] = i }
{ split($1, from, "/"); split($2, to, "/")
  if (rank[to[2]] > rank[from[2]]) { print $1 ": calls " $3 "() of the later part " to[2]; bad = 1 } }
END { exit bad }' "$work/calls" || bad=1

for folder in $folders; do
    awk -v folder="src/$folder/" 'index($1, folder) == 1 && index($2, folder) == 1 { print $1, $2 }' "$work/calls" >"$work/inside"
    if ! tsort "$work/inside" >/dev/null 2>"$work/circle"; then
        echo "src/$folder: a circle of files:"
        sed 's/^tsort: //' "$work/circle"
        bad=1
    fi
done
[ $bad = 0 ] || exit 1
echo "$(wc -l <"$work/calls") calls between files: every one points back; no circle in any folder"
