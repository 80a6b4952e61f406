#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/style/layers.sh ROOT: src/ is ordered. No file of a part includes a header of a later part,
# neither ours ("part/…h") nor a public one (czero/part.h). STYLE: the list is the dependency graph.
# The czero command is made of public headers, of base/ and of io/; only a conversion, which writes
# what the library would, goes further.
set -eu
cd "$1"
order="base trace device tensor state io shard operation engine group collective rule optim sched join parts ddp zero
       averaging hooks checkpoint interop plan"

find src include/czero -name '*.[ch]' | LC_ALL=C sort | xargs awk -v order="$(echo $order)" '
BEGIN { count = split(order, names, " "); for (i = 1; i <= count; i++) rank[names[i]] = i
        for (name in rank) face[name] = rank[name] # public headers, which are the face of the part that has their name
        face["group"] = face["backend"] = rank["operation"]
        face["shared"] = rank["collective"]
        face["in_backward"] = rank["optim"]
        face["powersgd"] = rank["hooks"]
        face["archive"] = rank["interop"] }
function complain(what) { print FILENAME ":" FNR ": " what; bad = 1 }

FNR == 1 {
    files++
    split(FILENAME, path, "/")
    part = path[1] == "src" ? path[2] : path[3]
    public = path[1] == "include"
    sub(/\.[ch]$/, "", part)
    here = public ? face[part] : rank[part]
    if (public && !here) here = part == "czero" ? count : 1 # status.h, version.h…: base
    if (!here) complain("folder " part " is not in the list of tests/style/layers.sh")
}
/^[ \t]*#[ \t]*include[ \t]*["<]/ && here {
    name = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*["<]/, "", name)
    sub(/[">].*/, "", name)
    if (name ~ /\.\./) complain("includes " name ": paths start at src/")
    if (name == "czero/czero.h") complain("includes czero/czero.h, which includes all parts")
    if (name ~ /^device\/cpu\// && here > rank["device"] && !public)
        complain("includes " name ": only src/device/ knows what the CPU is made of")
    pieces = split(name, piece, "/")
    if (pieces < 2) next
    other = piece[1] == "czero" ? piece[2] : piece[1]
    sub(/\.h$/, "", other)
    if (public && piece[1] != "czero" && rank[piece[1]]) complain("includes " name ", not installed")
    if ((piece[1] == "czero" ? face[other] : rank[other]) > here) complain(part " includes " name " of the later part " other)
}
END {
    if (!files) { print "no sources found"; exit 1 }
    if (bad) exit 1
    print files " files, " count " parts: every include points back"
}'


find tools -name '*.[ch]' | LC_ALL=C sort | xargs awk '
/^[ \t]*#[ \t]*include[ \t]*"[^"]*\// {
    split($0, quoted, "\"")
    split(quoted[2], path, "/")
    allowed = FILENAME ~ /^tools\/convert[^\/]*$/ ? "czero base io interop checkpoint shard" : "czero base io"
    seen++
    if (index(" " allowed " ", " " path[1] " ")) next
    print FILENAME ":" FNR ": the czero command includes " quoted[2] ", not of " allowed
    bad = 1
}
END { if (!seen) print "no includes found in tools/"
      exit bad || !seen }'
