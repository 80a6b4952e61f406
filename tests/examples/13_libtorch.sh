#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/13_libtorch.sh PROGRAM [MPIRUN]: on 2, 3 and 7 ranks, and on 2 MPI processes, the
# example has the losses of libtorch's own optimizer in one process, to rounding, and they fall.
set -eu
program=$1 mpirun=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
steps=121
export OPENBLAS_NUM_THREADS=1 # ranks are threads
"$program" $steps alone >"$work/alone"
for ranks in 2 3 7; do
    CZERO_RANKS=$ranks "$program" $steps >"$work/$ranks"
done
if [ -n "$mpirun" ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    "$mpirun" -n 2 "$program" $steps >"$work/mpi"
fi
cat "$work/alone" "$work/2"
status=0
for other in "$work"/[0-9]* "$work"/mpi; do
    [ -e "$other" ] || continue
    awk -v name="${other##*/}" '
        $1 != "step" { next }
        NR == FNR { loss[$2] = $4; last = $4; count++; next }
        { found++; difference = $4 - loss[$2]
          if (difference > 2e-4 || difference < -2e-4) { print name ": step " $2 " " $4 ", alone " loss[$2]; wrong = 1 } }
        END { if (count != 7 || found != count || last > 1) { print name ": " found " losses, the last " last; wrong = 1 }
              exit wrong }' "$work/alone" "$other" || status=1
done
exit $status
