#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/headers/alone.sh ROOT CC: each public header, and all of them together, compile as C17,
# C++17 and C++20 without a warning of the sharper kinds, and every
# exported symbol is declared in one of them, with C linkage in C++. Tries CC, and gcc, clang, g++,
# clang++ where they are present.
set -eu
root=$1 cc=$2
flags="-Wall -Wextra -Wpedantic -Wconversion -Wundef -Wshadow -Wstrict-prototypes -Werror"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

compilers() { for c in "$@"; do command -v "$c" >/dev/null && echo "$c"; done | awk '!seen[$0]++'; }
# try LANGUAGE STANDARD COMPILER
try() {
    for header in "$root"/include/czero/*.h; do
        name=${header##*/}
        # twice: include guards
        printf '#include <czero/%s>\n#include <czero/%s>\nextern int cz_nothing;\n' "$name" "$name" \
            >"$work/header.$1"
        # shellcheck disable=SC2086
        "$3" -x "$1" -std=$2 $flags -I "$root/include" -fsyntax-only "$work/header.$1" ||
            { echo "$3 -std=$2: czero/$name does not compile alone"; status=1; }
    done
    for header in "$root"/include/czero/*.h; do echo "#include <czero/${header##*/}>"; done >"$work/all.$1"
    echo 'extern int cz_nothing;' >>"$work/all.$1"
    # shellcheck disable=SC2086
    "$3" -x "$1" -std=$2 $flags -I "$root/include" -fsyntax-only "$work/all.$1" ||
        { echo "$3 -std=$2: the headers do not compile together"; status=1; }
    echo "$3 -std=$2: done"
}

flags_c=$flags
for c in $(compilers "$cc" gcc clang); do try c c17 "$c"; done
flags=$(echo "$flags_c" | sed 's/ -Wstrict-prototypes//')
found=
for c in $(compilers g++ clang++); do
    found=$c
    try c++ c++17 "$c"
    try c++ c++20 "$c"
done
if [ -z "$found" ]; then
    echo "no C++ compiler here: C++ not tried"
    exit $status
fi

{
    for header in "$root"/include/czero/*.h; do echo "#include <czero/${header##*/}>"; done
    echo 'extern const void *const table[];'
    echo 'const void *const table[] = {'
    sed 's/.*/(const void *)\&&,/' "$root/tests/abi/symbols.txt"
    echo '0};'
} >"$work/linkage.cpp"
"$found" -std=c++17 -I "$root/include" -c "$work/linkage.cpp" -o "$work/linkage.o" || exit 1
nm -u "$work/linkage.o" | awk '{print $2}' | LC_ALL=C sort >"$work/symbols"
if ! diff "$root/tests/abi/symbols.txt" "$work/symbols"; then
    echo "the names above have no C linkage in C++ (a header without extern \"C\"?)"
    status=1
fi
exit $status
