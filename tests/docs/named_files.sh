#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/named_files.sh ROOT: every file and folder that docs/ARCHITECTURE.md, CONTRIBUTING.md
# and README.md's table of examples name exists, and the map of folders has those of src/ in their
# order (tests/style/layers.sh).
set -eu
cd "$1"
map=docs/ARCHITECTURE.md
failed=0
for page in $map CONTRIBUTING.md README.md; do
    text=$(cat $page)
    [ $page != README.md ] || text=$(sed -nE 's/^[|] `([0-9]{2}_[^`]*)`.*/\1/p' $page)
    # Whatever ends like a file, or in "/". Capitals stand for any name.
    names=$(echo "$text" | grep -oE '[A-Za-z0-9_./*-]+(\.(c|h|sh|md|txt)|/)' | grep -vE '[A-Z]{2}|^/|^build/|//' |
        sed 's|/$||' | LC_ALL=C sort -u)
    [ -n "$names" ] || { echo "$page names no file"; failed=1; }
    for name in $names; do
        [ -n "$(find . \( -path ./build -o -path ./.git \) -prune -o -path "*/$name" -print | head -n 1)" ] ||
            { echo "$page: there is no $name"; failed=1; }
    done
done

parts=$(sed -n '/^order="/,/"$/p' tests/style/layers.sh | tr -d '"' | sed 's/order=//')
named=$(awk -F ' *[|] *' '/^## The map of folders/ { here = 1; next } /^## / { here = 0 }
    here && /^\| [a-z]/ && $2 != "part" { print $2 }' $map)
[ "$(echo $parts)" = "$(echo $named)" ] || {
    echo "$map has the parts" $named
    echo "tests/style/layers.sh has" $parts
    failed=1
}
exit $failed
