#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/09_resume.sh COMMAND…: stopped on 2 ranks and resumed on 5, then on 1, the example
# has the losses of a training without a break on 3.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CZERO_RANKS=3 "$@" "$work/whole" 120 >"$work/whole.out"
for part in 2:60 5:100 1:120; do
    CZERO_RANKS=${part%:*} "$@" "$work/parts" "${part#*:}"
done >"$work/parts.out"
cat "$work/parts.out"
diff -u "$work/whole.out" "$work/parts.out" || { echo "- without a break, + with two"; exit 1; }
[ "$(wc -l <"$work/whole.out")" = 6 ] || { echo "not 6 losses"; exit 1; }
