#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/multihost/small.sh PROGRAM [ROUNDS]: small all-reduces between two hosts with one rank on
# each; their link is as fast as it can be.
set -eu
. "$(dirname "$0")/common.sh"
program=$(realpath "$1")
own_hosts "$0" "$@"

two_hosts
CZ_RANKS_OF_HOST=1 sh "$tests/run.sh" "$dir" "$program" "${2:-21}"
