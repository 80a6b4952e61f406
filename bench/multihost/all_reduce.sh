#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/multihost/all_reduce.sh PROGRAM [MIB [ROUNDS]]: all-reduce on two hosts whose link is shaped
# to 1 Gbit/s each way, with one rank a host and with two.
set -eu
. "$(dirname "$0")/common.sh"
program=$(realpath "$1")
own_hosts "$0" "$@"

two_hosts
slow_links
for ranks in 1 2; do
    CZ_RANKS_OF_HOST=$ranks sh "$tests/run.sh" "$dir" "$program" "${2:-64}" "${3:-7}"
done
