# SPDX-License-Identifier: MIT
# What the tests of the pages on ports have in common: sh TEST.sh ROOT COMPILER LIBRARY…
set -eu
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# port PAGE BEFORE AFTER MOST: apply the page's diff, of which at most so many lines of code come
port() {
    awk '/^```/ { take = $0 == "```diff"; next } take' "$root/docs/$1" >"$work/diff"
    cp "$2" "$3"
    patch -s --no-backup-if-mismatch "$3" "$work/diff" || fail "the diff in docs/$1 does not fit"
    come=$(grep '^+[^+]' "$work/diff" | grep -c '[a-z]')
    [ "$come" -le "$4" ] || fail "docs/$1: $come lines of code come, allowed are $4"
}

# same WHAT FILE FILE: what both print differs by 0.0002 at most, line by line
same() {
    paste -d' ' "$2" "$3" | awk -v what="$1" '
        { n = NF / 2; d = $n - $NF; if ($2 != $(n + 2) || d > 0.0002 || d < -0.0002) bad = 1 }
        END { if (bad || NR == 0) { print what ": " NR " lines, other losses"; exit 1 } }' ||
        { cat "$2" "$3"; exit 1; }
}
