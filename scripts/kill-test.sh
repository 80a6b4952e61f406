#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/kill-test.sh PROGRAMS N JSON [MPIRUN…]: jobs that save all the time are killed N times,
# see tests/checkpoint/kill/kill.c; PROGRAMS is the folder where it was built. What a failure has
# left stays.
set -eu
programs=$1 count=$2 json=$3
shift 3
unset CZERO_RANKS
TMPDIR=$(mktemp -d)
export TMPDIR
export OMPI_MCA_btl_vader_backing_directory="$TMPDIR" # killed ranks leave segments
if "$programs/kill" "$programs/job" "$count" "$json" "$@"; then
    rm -rf "$TMPDIR"
else
    echo "kill-test.sh: folders of failures are in $TMPDIR" >&2
    exit 1
fi
