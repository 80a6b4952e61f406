#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/style/circles.sh ROOT OBJECTS [FOLDER OBJECTS]…: calls of src/ are ordered as its includes
# are (layers.sh), and within a folder no file calls one that calls it back, by way of others
# neither; so it is in each FOLDER. OBJECTS has what src/, or the folder, was compiled to.
set -eu
cd "$1"
objects=$2
shift 2
order=$(sed -n '/^order="/,/"$/p' tests/style/layers.sh | tr -d '"' | sed 's/order=//')
folders=$(echo $order)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# CALLER CALLED SYMBOL, of objects that are named by standard input, FILE OBJECT. Objects of files
# that are gone may lie there still.
calls() {
    while read -r file object; do
        [ ! -f "$object" ] || nm "$object" | sed -n -e "s|^ *U \([A-Za-z_0-9]*\)\$|$file U \1|p" \
            -e "s|^[0-9a-f]* [TDBR] \([A-Za-z_0-9]*\)\$|$file D \1|p"
    done | awk '$2 == "D" { home[$3] = $1; next }
        { wants[++count] = $0 }
        END { for (i = 1; i <= count; i++) { split(wants[i], w, " ")
                  if (home[w[3]] && home[w[3]] != w[1]) print w[1], home[w[3]], w[3] } }'
}

bad=0
# no_circle FOLDER CALLS: among its files
no_circle() {
    awk -v folder="$1/" 'index($1, folder) == 1 && index($2, folder) == 1 { print $1, $2 }' "$2" >"$work/inside"
    if ! tsort "$work/inside" >/dev/null 2>"$work/circle"; then
        echo "$1: a circle of files:"
        sed 's/^tsort: //' "$work/circle"
        bad=1
    fi
}

find src -name '*.c' ! -path 'src/device/cpu/kernels/*' | LC_ALL=C sort |
    sed "s|.*|& $objects/&.o|" | calls >"$work/calls"
[ -s "$work/calls" ] || { echo "no calls found below $objects"; exit 1; }

awk -v order="$(echo $order)" '
BEGIN { count = split(order, names, " "); for (i = 1; i <= count; i++) rank[names[i]] = i }
{ split($1, from, "/"); split($2, to, "/")
  if (rank[to[2]] > rank[from[2]]) { print $1 ": calls " $3 "() of the later part " to[2]; bad = 1 } }
END { exit bad }' "$work/calls" || bad=1

for folder in $folders; do
    no_circle "src/$folder" "$work/calls"
done

while [ $# -gt 0 ]; do
    for file in "$1"/*.c; do
        echo "$file $2/${file##*/}.o"
    done | calls >"$work/of_folder"
    [ -s "$work/of_folder" ] || { echo "no calls found below $2"; exit 1; }
    no_circle "$1" "$work/of_folder"
    shift 2
done
[ $bad = 0 ] || exit 1
echo "$(wc -l <"$work/calls") calls between files: every one points back; no circle in any folder"
