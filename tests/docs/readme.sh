#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/readme.sh ROOT CMAKE BUILD CC: the C program in README.md compiles against an installed
# czero with the command that README.md gives (a line that starts with cc and asks pkg-config), and
# runs.
set -eu
root=$1 cmake=$2 build=$3 compiler=$4
work=$(mktemp -d) # outside the build folder: its name may hold a space
trap 'rm -rf "$work"' EXIT

# the first fenced block in C that has a main
awk '
/^```/ { if (inside) { if (text ~ /int main/) { printf "%s", text; exit } inside = 0 }
         else if ($0 ~ /^```c[ \t]*$/) { inside = 1; text = "" }
         else inside = -1
         if (inside == -1) { other = !other; inside = 0 } next }
inside { text = text $0 "\n" }' "$root/README.md" >"$work/program.c"
[ -s "$work/program.c" ] || { echo "README.md has no fenced C block with int main"; exit 1; }

command=$(sed -n 's/^\(\$ \)\{0,1\}\(cc .*pkg-config.*\)$/\2/p' "$root/README.md" | head -n 1)
command=${command%% && *}
[ -n "$command" ] || command='cc program.c -o program $(pkg-config --cflags --libs czero)'
source=$(echo "$command" | tr ' ' '\n' | grep '\.c$' | head -n 1)
program=$(echo "$command" | sed -n 's/.* -o *\([^ ]*\).*/\1/p')

DESTDIR="$work/stage" "$cmake" --install "$build" --prefix /opt/czero >"$work/install.log"
pc=$(find "$work/stage" -name czero.pc)
unset PKG_CONFIG_SYSROOT_DIR
export PKG_CONFIG_PATH="${pc%/*}"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir czero)
export LD_LIBRARY_PATH

mkdir "$work/here"
cd "$work/here"
mkdir -p "$(dirname "$source")"
cp "$work/program.c" "$source"
echo "\$ $command"
cc() { "$compiler" "$@"; } # the one under test
eval "$command"
echo "\$ ./${program:-a.out}"
"./${program:-a.out}"
