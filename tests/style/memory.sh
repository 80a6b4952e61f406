#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/style/memory.sh ROOT: a sentence that goes with CZ_ERR_MEMORY says so in its own words:
# where it is read, in a log or from the czero command, the status is not beside it.
set -eu
cd "$1"
find src plugins tools -name '*.[ch]' | LC_ALL=C sort | xargs awk '
    function look(file, text,    at, rest, sentence) {
        while ((at = index(text, "CZ_ERR_MEMORY,")) > 0) {
            text = substr(text, at + 14)
            rest = text
            sentence = ""
            while (match(rest, /^[ \n]*"([^"\\]|\\.)*"([ \n]*PRI[a-z0-9A-Z]*)?/)) {
                sentence = sentence substr(rest, 1, RLENGTH)
                rest = substr(rest, RLENGTH + 1)
            }
            seen += sentence != ""
            if (sentence == "" || sentence ~ /memory/ || sentence ~ /^ *"%s; /) # of why, in the end
                continue
            gsub(/[ \n]+/, " ", sentence)
            print file ": nothing about memory in" sentence
            failed = 1
        }
    }
    FNR == 1 && NR > 1 { look(file, all); all = "" }
    { file = FILENAME; all = all $0 "\n" }
    END {
        look(file, all)
        if (seen < 100) { print "only " seen + 0 " sentences were found"; failed = 1 }
        exit failed
    }'
