#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/multihost/overlap.sh PROGRAM REPORT.json [ROUNDS]: run the program on two hosts whose link
# is shaped to 1 Gbit/s each way. Where that is not allowed there is no report.
set -eu
program=$(realpath "$1")
mkdir -p "$(dirname "$2")"
report=$(realpath "$2")
rm -f "$report"
. "$(dirname "$0")/common.sh"
own_hosts "$0" "$@"

two_hosts
slow_links
CZ_RANKS_OF_HOST=1 sh "$tests/run.sh" "$dir" "$program" "$report" "${3:-15}"
