#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/gpt_common.sh: sourced by tests of the main example. Makes the folder $work, which
# goes at the end, and `text`, the example's option for a text in it: none for the King James text,
# or one that can be learned as well: words drawn from a few.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CZERO_RANKS

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

text=
if ! bible -f gen1:1 >"$work/verse" 2>&1; then
    echo "no King James text here: a generated one instead"
    text="--text $work/text"
    awk 'BEGIN {
        count = split("and the of that in he shall unto for I his a they lord be is him not", word, " ")
        for (x = 1; bytes < 250000; x = (x * 69069 + 1) % 4294967296) {
            w = word[int(x / 65536) % count + 1]
            printf "%s%s", w, int(x / 65536) % 11 ? " " : ".\n"
            bytes += length(w) + 1
        }
    }' >"$work/text"
fi
