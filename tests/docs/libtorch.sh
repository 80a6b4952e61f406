#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/libtorch.sh ROOT CMAKE BUILD: what docs/libtorch.md shows builds as it stands against an
# installed czero, and prints what the page says.
set -eu
root=$1 cmake=$2 build=$3
page=$root/docs/libtorch.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# block LANGUAGE WORD: the first fenced block of the page in that language with that word
block() {
    awk -v fence="\`\`\`$1" -v word="$2" '
        inside && /^```$/ { if (index(text, word)) { printf "%s", text; exit } inside = 0; next }
        inside { text = text $0 "\n" }
        $0 == fence { inside = 1; text = "" }' "$page"
}
block cpp 'int main' >"$work/program.cpp"
block cmake 'find_package(Torch' >"$work/CMakeLists.txt"
block sh 'cmake -B' >"$work/commands.sh"
"$cmake" --install "$build" --prefix "$work/czero" >"$work/install.log"

cd "$work"
export HOME="$work" # where the page has installed it
sh -eu ./commands.sh >"$work/output" 2>&1 || { cat "$work/output"; exit 1; }
grep '^rank ' "$work/output" | LC_ALL=C sort >"$work/found"
block text 'rank 0 of 3' | diff -u - "$work/found" || { echo "- the page, + the program"; exit 1; }
cat "$work/found"
