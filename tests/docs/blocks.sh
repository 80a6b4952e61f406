#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/blocks.sh PAGE FOLDER [NAME MOST]: write each fenced C block of a page that begins with
# a comment "NAME.c: …" to FOLDER/NAME.c. The block NAME is to have at most MOST lines.
set -eu
page=$1 folder=$2
mkdir -p "$folder"
awk -v folder="$folder" '
/^```/ { if (file) close(file); first = $0 == "```c"; file = ""; next }
first && match($0, /^\/\* [a-z_]+\.c:/) { file = folder "/" substr($0, 4, RLENGTH - 4); printf "" >file }
{ first = 0 }
file { print >file }' "$page"
[ $# -gt 2 ] || exit 0
lines=$(wc -l <"$folder/$3.c")
[ "$lines" -le "$4" ] || { echo "$3.c in $page has $lines lines, allowed are $4"; exit 1; }
