#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/fortran/stops.sh PROGRAM: where nobody asks for the status of a call that fails, the program
# ends with the sentence, and not well.
set -eu
if output=$("$1" 2>&1); then
    echo "it ended well: $output"
    exit 1
fi
echo "$output"
echo "$output" | grep -q "^czero: model: the value of 'w' is not contiguous" || { echo "another sentence"; exit 1; }
! echo "$output" | grep -q 'it went on'
