#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/headers/languages.sh ROOT CC LIBRARY: what stands beside a macro does what the macro does,
# in C and in C++; a macro that only C can use says so in C++; and the README's program in C++ does
# what that in C does.
set -eu
root=$1 cc=$2 library=$3
flags="-Wall -Wextra -Wpedantic -Wconversion -Werror -I $root/include"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# Each _INIT has its function, with the same bytes; then the functions beside CZ_HYPERS, CZ_LABEL
# and CZ_START.
{
    cat <<'END'
#include <czero/czero.h>

#include <string.h>

static int faults;

static void expect(int right, const char *what)
{
    if (!right)
        printf("%s\n", what);
    faults += !right;
}

static void try_init_functions()
{
END
    sed -n 's/^#define \(CZ_[A-Z0-9_]*\)_INIT[ \\].*/\1/p' "$root"/include/czero/*.h | while read -r word; do
        type=$(echo "$word" | tr '[:upper:]' '[:lower:]')
        echo "    { $type a, b = ${word}_INIT; memset(&a, 1, sizeof a); ${type}_init(&a);"
        echo "      expect(a.size == sizeof a && a.size == b.size, \"${type}_init\"); }"
    done
    cat <<'END'
}

static void try_values()
{
    const char *const names[] = {"lr", "eps"};
    const double values[] = {0.5, 0.25};
    cz_hyper room[3];
    const cz_hyper *list = cz_hyper_list(room, 2, names, values);
    cz_work *work = NULL;
    const cz_operation_options label = cz_operation_label("l"), start = cz_operation_start("s", &work);
    expect(strcmp(list[1].name, "eps") == 0 && list[1].value == 0.25 && !list[2].name, "cz_hyper_list");
    expect(label.size == sizeof label && strcmp(label.label, "l") == 0 && !label.work, "cz_operation_label");
    expect(start.size == sizeof start && strcmp(start.label, "s") == 0 && start.work == &work, "cz_operation_start");
    expect(cz_fail_text(CZ_ERR_IO, "100 %s") == CZ_ERR_IO && strcmp(cz_last_error(), "100 %s") == 0, "cz_fail_text");
    cz_log_text(CZ_LOG_DEBUG, "100 %s");
}

int main()
{
    try_init_functions();
    try_values();
    return faults > 0;
}
END
} >"$work/values.c"
cp "$work/values.c" "$work/values.cpp"

build() { # COMPILER STANDARD SOURCE PROGRAM
    # shellcheck disable=SC2086
    "$1" "-std=$2" $flags "$3" -o "$4" "$library" -Wl,-rpath,"${library%/*}" ||
        { echo "$1 -std=$2: ${3##*/} does not compile"; status=1; return 1; }
}

# The lists of C in C++: refused, with a sentence.
refused() { # COMPILER MACRO CALL
    printf '#include <czero/czero.h>\nconst void *nothing() { return %s; }\n' "$3" >"$work/refused.cpp"
    # shellcheck disable=SC2086
    if "$1" -std=c++17 $flags -fsyntax-only "$work/refused.cpp" 2>"$work/errors"; then
        echo "$1: $2 compiles in C++, where its list is gone at once"; status=1
    elif ! grep -q "$2 is for C: " "$work/errors"; then
        echo "$1: no sentence says that $2 is for C"; status=1
    fi
}

build "$cc" c17 "$work/values.c" "$work/values" && { "$work/values" || status=1; }
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    for standard in c++17 c++20; do
        build $compiler $standard "$work/values.cpp" "$work/values" && { "$work/values" || status=1; }
        build $compiler $standard "$root/examples/01_adamw.cpp" "$work/adamw" && {
            LC_ALL=C "$work/adamw" | LC_ALL=C sort | diff - "$root/tests/examples/01_adamw.out" ||
                { echo "$compiler -std=$standard: examples/01_adamw.cpp prints something else than in C"; status=1; }
        }
    done
    refused $compiler CZ_HYPERS 'CZ_HYPERS({"lr", 0.1})'
    refused $compiler CZ_LABEL 'CZ_LABEL("sum")'
    refused $compiler CZ_START 'CZ_START("sum", nullptr)'
done

# What the README shows of the C++ program is in it.
# shellcheck disable=SC2016
awk '/^```cpp$/ { inside = 1; next } /^```$/ { inside = 0 } inside && NF' "$root/README.md" >"$work/shown"
[ -s "$work/shown" ] || { echo "README.md shows nothing in C++"; status=1; }
while read -r line; do
    grep -qF "$line" "$root/examples/01_adamw.cpp" ||
        { echo "README.md has a line in C++ that examples/01_adamw.cpp has not: $line"; status=1; }
done <"$work/shown"
exit $status
