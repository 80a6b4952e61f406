#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/lint.sh [--fix|--quick]: layout of every file in C or C++, then static analysis. --fix: layout only,
# by rewriting. --quick: clang-tidy without its walk along paths, which takes longer than all the
# rest; gcc walks them too. Needs build/dev/compile_commands.json.
set -eu
cd "$(dirname "$0")/.."

c_files() {
    for folder in include src tests examples bench plugins tools; do
        [ ! -d $folder ] || find $folder -name '*.[ch]' -o -name '*.[ch]pp'
    done | LC_ALL=C sort
}

# layout FILE: clang-format's, but `#define …_INIT {…}` on its one line: clang-format 14 takes the
# initializer for a block of statements.
layout() {
    clang-format "$1" | awk '
    /^#define [A-Za-z0-9_]+_INIT +\\$/ { joined = $1 " " $2 " "; original = $0; next }
    joined {
        original = original "\n" $0
        more = sub(/[ ]*\\$/, "")
        sub(/^ +/, "")
        joined = joined (joined ~ /,$/ ? " " : "") $0
        if (more) next
        print length(joined) <= 100 ? joined : original
        joined = ""
        next
    }
    { print }'
}

changed=$(mktemp)
trap 'rm -f "$changed"' EXIT
status=0
[ "${1:-}" = --fix ] || echo "lint: clang-format"
# clang-format's own layout is fine, too: only the others are laid out here.
# Each process writes its few names at once, so that those of two do not mix.
for file in $(c_files | xargs -n 32 -P "$(nproc)" sh -c 'clang-format --dry-run "$@" 2>&1 |
    sed -n "s/^\([^ :]*\.[ch]p*\):[0-9]*:[0-9]*: .*/\1/p" | sort -u' names | LC_ALL=C sort -u); do
    layout "$file" >"$changed"
    cmp -s "$file" "$changed" && continue
    if [ "${1:-}" = --fix ]; then
        cat "$changed" >"$file"
        echo "$file"
    else
        diff -u "$file" "$changed" || status=1
    fi
done
[ "${1:-}" != --fix ] || exit 0
[ $status = 0 ] || echo "lint: + is the house layout; 'make format' brings it about"

checks=
[ "${1:-}" != --quick ] || checks=-clang-analyzer-*
echo "lint: clang-tidy${checks:+, checks $checks}"
# Without an option that gcc alone knows.
mkdir -p build/lint
sed 's/ -mstringop-strategy=[a-z]*//' build/dev/compile_commands.json >build/lint/compile_commands.json
find src plugins tools -name '*.c' | LC_ALL=C sort |
    xargs -n 4 -P "$(nproc)" clang-tidy -p build/lint --quiet --checks="$checks" >"$changed" 2>&1 || status=1
grep -vE '^[0-9]+ warnings? generated\.$' "$changed" || true

echo "lint: cppcheck"
cppcheck --quiet --error-exitcode=1 --std=c11 --language=c --inline-suppr -j "$(nproc)" \
    --enable=warning,performance,portability --suppress=missingIncludeSystem \
    -DCZ_LEVEL=v1 -D__x86_64__ -D__linux__ -I include -I src src || status=1

# As for clang-tidy: what cannot see across files that a call which returned CZ_OK has set its
# result is left out.
echo "lint: gcc -fanalyzer"
find src -name '*.c' | LC_ALL=C sort |
    xargs -n 1 -P "$(nproc)" gcc -std=c17 -O1 -fanalyzer -Wno-analyzer-null-dereference \
        -Wno-analyzer-null-argument -D_GNU_SOURCE= -DCZ_LEVEL=v1 -DCZ_STATIC_ANALYSIS '-DCZ_PLUGIN_FOLDER=""' \
        -I include -I src \
        -c -o /dev/null >"$changed" 2>&1 || status=1
[ ! -s "$changed" ] || { cat "$changed"; status=1; }

[ $status = 0 ] && echo "lint: nothing to complain about"
exit $status
