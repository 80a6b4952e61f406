#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/python/run.sh PYTHON TEST: run it; 77 (skipped) where a package that it imports is missing.
set -eu
python=$1 test=$2
for package in numpy torch; do
    grep -qE "^ *import $package\b" "$test" || continue
    "$python" -c "import $package" 2>/dev/null || { echo "skipped: $python has no $package"; exit 77; }
done
exec "$python" "$test"
