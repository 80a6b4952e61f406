#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/readme.sh ROOT CMAKE BUILD CC: the C program in README.md is examples/01_adamw.c,
# compiles against an installed czero with the command that README.md gives (the line that starts
# with cc), and prints what README.md and tests/examples/01_adamw.out say.
set -eu
root=$1 cmake=$2 build=$3 compiler=$4
example=examples/01_adamw.c
wanted=$root/tests/examples/01_adamw.out
work=$(mktemp -d) # outside the build folder: its name may hold a space
trap 'rm -rf "$work"' EXIT

# block LANGUAGE WORD: the first fenced block of README.md in that language with that word
block() {
    awk -v fence="\`\`\`$1" -v word="$2" '
        inside && /^```$/ { if (index(text, word)) { printf "%s", text; exit } inside = 0; next }
        inside { text = text $0 "\n" }
        $0 == fence { inside = 1; text = "" }' "$root/README.md"
}

block c 'int main' >"$work/program.c"
sed '1,/^#include/{/^#include/!d;}' "$root/$example" | diff -u "$work/program.c" - ||
    { echo "the program of README.md (-) is not $example (+) without its first comments"; exit 1; }
block text 'rank 0 of 4' | diff -u - "$wanted" ||
    { echo "what README.md says it prints (-) is not $wanted (+)"; exit 1; }

command=$(sed -n "s|^\(cc .* $example .*pkg-config.*[^ ]\) && .*|\1|p" "$root/README.md")
program=$(echo "$command" | sed -n 's/.* -o *\([^ ]*\).*/\1/p')
[ -n "$program" ] || { echo "README.md has no line: cc … -o PROGRAM $example … && …"; exit 1; }

DESTDIR="$work/stage" "$cmake" --install "$build" --prefix /opt/czero >"$work/install.log"
pc=$(find "$work/stage" -name czero.pc)
unset PKG_CONFIG_SYSROOT_DIR
export PKG_CONFIG_PATH="${pc%/*}"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir czero)
export LD_LIBRARY_PATH

mkdir -p "$work/clone/${example%/*}"
cp "$root/$example" "$work/clone/$example"
cd "$work/clone"
echo "\$ $command"
cc() { command "$compiler" "$@"; } # the one under test
eval "$command"
echo "\$ ./$program"
sh "$root/tests/examples/output.sh" "$wanted" own "./$program"
