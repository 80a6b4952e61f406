#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/abi/grown.sh ROOT CC LIBRARY: a program works with a library whose structs are longer than
# those that it was compiled with, or shorter; and structs.txt says of every public struct whether
# it may grow.
set -eu
export LC_ALL=C
root=$1 cc=$2 library=$3
here=$root/tests/abi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# ---- every struct is listed, and those that grow begin with their size (or with an ABI and their
# size) ----

# shellcheck disable=SC2016
awk '
    /^typedef struct [a-z_]+ \{/ { name = $3; line = 0; next }
    name != "" && /^\} / { name = "" }
    name != "" && /^    [a-z]/ && ++line <= 2 { first[name] = first[name] " " $1 " " $2 }
    END {
        for (name in first)
            print name, first[name] ~ /^ size_t size;|^ uint32_t abi; size_t size;/ ? "sized" : "plain"
    }' "$root"/include/czero/*.h | sort >"$work/structs"
grep -v '^#' "$here/structs.txt" | sort >"$work/listed"
cut -d' ' -f1 "$work/structs" >"$work/names"
cut -d' ' -f1 "$work/listed" | diff "$work/names" - || {
    echo "< is a public struct that tests/abi/structs.txt does not list, > is listed and no struct"; status=1; }
# A rule says how long the specs in its arrays are.
join "$work/structs" "$work/listed" | awk '
    $1 ~ /^cz_(hyper|slot)_spec$/ { next }
    ($3 == "=") != ($2 == "plain") {
        print $1 ($2 == "plain" ? ": it grows, so `size_t size` is its first field" : ": it has a size, so it may grow")
        bad = 1
    }
    END { exit bad }' || status=1

# An enumerator that counts the others changes its value when one is added.
if grep -nE '^ *CZ_[A-Z_]*_COUNT\b' "$root"/include/czero/*.h; then
    echo "the enumerators above change when there are more: leave them out"; status=1
fi

# ---- the program with three sets of headers ----

# headers older|newer: in older ones structs end before the field in the list, in newer ones they
# have two more.
headers() {
    mkdir -p "$work/$1/czero"
    for header in "$root"/include/czero/*.h; do
        awk -v way="$1" '
            FNR == NR { if ($2 != "=" && $1 !~ /^#/) cut[$1] = $2; next }
            /^#define CZ_[A-Z0-9_]+_INIT/ && way == "older" {
                word = tolower($2); sub(/_init$/, "", word)
                if (word in cut && cut[word] != "-") {
                    while ($0 ~ /\\$/) getline
                    print "#define " toupper(word) "_INIT {sizeof(" word ")}"
                    next
                }
            }
            /^static inline cz_operation_options cz_operation_start/ && way == "older" { gone_function = 1 }
            gone_function { if (/^\}/) gone_function = 0; next }
            /^typedef struct [a-z_]+ \{/ { name = $3; gone = 0; held = ""; print; next }
            name != "" && /^\} / {
                if (way == "newer" && name in cut && name !~ /^cz_(rule|backend|device)$/ && name !~ /_spec$/)
                    print "    int64_t later[2];"
                if (!gone) printf "%s", held
                name = ""; print; next
            }
            name != "" && way == "older" && (name in cut) {
                code = $0; sub(/\/\*.*/, "", code); sub(/[ \t]+$/, "", code)
                if (code ~ "[ *(]" cut[name] "(;|\\[|, [a-z_]+;|[)][(])") gone = 1
                if (gone) next
                printf "%s", held; held = ""
                if (code ~ /^    [a-z]/ && code !~ /;$/ && code !~ /,$/) { held = $0 "\n"; next }
            }
            { print }' "$here/structs.txt" "$header" >"$work/$1/czero/${header##*/}"
    done
}

run() {
    "$cc" -std=c17 -I "$2" -D_GNU_SOURCE= -DGROWN_LIST="\"$work/sizes.h\"" "$here/grown.c" -o "$work/$1.program" \
        "$library" -lpthread -lm -Wl,-rpath,"$(dirname "$library")" && "$work/$1.program" "$work" >"$work/$1.out" ||
        { echo "the program does not work with the structs of a program that is $1"; status=1; }
}

headers older
headers newer
awk '$1 !~ /^#/ { print "SIZE(" $1 ")" }' "$here/structs.txt" >"$work/sizes.h"
run "as old as the library" "$root/include"
run older "$work/older"
run newer "$work/newer"
[ $status = 0 ] || exit $status

while read -r name field bytes; do
    of() { awk -v name="$name" '$1 == name { print $2 }' "$work/$1.out"; }
    now=$(of "as old as the library")
    if [ "$field" = "=" ] && [ "$bytes" != "$now" ]; then
        echo "$name has $now bytes, and never changes from $bytes"; status=1
    elif [ "$field" != "=" ] && [ "$field" != "-" ] && [ "$(of older)" -ge "$now" ]; then
        echo "$name: it is no shorter without $field, so an older program was not tried"; status=1
    fi
done <"$work/listed"
[ $status = 0 ] && echo "$(wc -l <"$work/listed") structs"
exit $status
