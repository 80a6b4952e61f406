#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/fortran/alone.sh PROGRAM ARGUMENTS…: in a folder of its own.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$@"
