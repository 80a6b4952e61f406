#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/cpp/cpp.sh ROOT LIBRARY: czero.hpp compiles without a warning with g++ and clang++ as C++17 and C++20, its test
# passes, and it has every public function that fails, makes or destroys something.
set -eu
root=$1 library=$2
flags="-Wall -Wextra -Wpedantic -Wconversion -Werror -I $root/include"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

compile() { # COMPILER STANDARD OPTION…
    compiler=$1 standard=$2
    shift 2
    command -v "$compiler" >/dev/null || return 0
    # shellcheck disable=SC2086
    "$compiler" "-std=$standard" $flags "$root/tests/cpp/test_cpp.cpp" "$@" ||
        { echo "$compiler -std=$standard: it does not compile"; status=1; }
}
compile g++ c++20 -fsyntax-only
compile clang++ c++17 -fsyntax-only
compile clang++ c++20 -o "$work/clang" "$library" -Wl,-rpath,"${library%/*}"
compile g++ c++17 -o "$work/gcc" "$library" -Wl,-rpath,"${library%/*}"
for program in "$work/gcc" "$work/clang"; do
    [ ! -e "$program" ] || TMPDIR=$work "$program" || status=1
done

# What has no handle and no status, or is only for C, is called as it is.
as_it_is=" cz_build_info cz_device_cpu cz_dtype_name cz_dtype_size cz_fail cz_fail_text cz_fingerprint_chain
    cz_hook_name cz_last_error cz_log cz_log_set_level cz_log_text cz_memory_bytes cz_memory_peak_bytes
    cz_memory_reset_peak cz_random_block cz_random_normal cz_rule_find cz_rule_name
    cz_set_allocator cz_status_name cz_sum_add cz_sum_value cz_version "
while read -r name; do
    case $as_it_is in *[[:space:]]"$name"[[:space:]]*) continue ;; esac
    grep -qE "\b$name\b" "$root/include/czero/czero.hpp" ||
        { echo "czero.hpp has nothing for $name()"; status=1; }
done <"$root/tests/abi/symbols.txt"
exit $status
