#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench.sh FOLDER: run every benchmark that was built there, one after the other.
set -eu
find "$1" -name CMakeFiles -prune -o -type f -perm -u+x -print | LC_ALL=C sort |
while read -r program; do
    echo "== ${program#"$1"/}"
    "$program" </dev/null
done
