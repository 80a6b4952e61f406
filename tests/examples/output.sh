#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/output.sh FILE COMMAND…: the command ends well and prints the lines of FILE and no
# others, in any order, as ranks print when they come to it.
set -eu
wanted=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$@" >"$work/printed"
LC_ALL=C sort "$work/printed" >"$work/lines"
LC_ALL=C sort "$wanted" | diff -u - "$work/lines" || { echo "+ was printed, - is wanted"; exit 1; }
cat "$work/printed"
