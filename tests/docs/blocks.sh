#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/blocks.sh PAGE FOLDER: write each fenced C block of a page that begins with a comment
# "NAME.c: …" to FOLDER/NAME.c. The backend of docs/add-a-backend.md must stay under 150 lines.
set -eu
page=$1 folder=$2
mkdir -p "$folder"
awk -v folder="$folder" '
/^```/ { if (file) close(file); first = $0 == "```c"; file = ""; next }
first && match($0, /^\/\* [a-z_]+\.c:/) { file = folder "/" substr($0, 4, RLENGTH - 4); printf "" >file }
{ first = 0 }
file { print >file }' "$page"
lines=$(wc -l <"$folder/board.c")
[ "$lines" -lt 150 ] || { echo "board.c in $page has $lines lines, allowed are 149"; exit 1; }
