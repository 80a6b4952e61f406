#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/install/subproject.sh ROOT CMAKE BUILD CC: czero inside another project brings the library,
# and no tests, examples or install rules. Built and run at night only: it is the library once more.
set -eu
root=$1 cmake=$2 build=$3 cc=$4
work=$build/tests/install/subproject
rm -rf "$work"
"$cmake" -G Ninja -S "$root/tests/install/subproject" -B "$work" -D CZERO_ROOT="$root" \
    -D CMAKE_C_COMPILER="$cc" -D CMAKE_BUILD_TYPE=Debug
cd "$work"
ctest -N | grep 'Total Tests: 0'
if [ -n "${CZ_TEST_NIGHTLY:-}" ]; then
    "$cmake" --build . --target consumer
    ./consumer
fi
