#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/from_mpi.sh ROOT MPICC FLAVOUR FOLDER MPIRUN MOST: the loop that docs/from-mpi.md ports
# learns as before, on 1 to MOST ranks; and ranks with other numbers of batches come to one end.
. "$(dirname "$0")/port.sh"
mpicc=$2 flavour=$3 folder=$4 mpirun=$5 most=$6
command -v patch >/dev/null || { echo "no patch here"; exit 77; }

sh "$root/tests/docs/blocks.sh" "$root/docs/from-mpi.md" "$work" by_hand 73
port from-mpi.md "$work/by_hand.c" "$work/with_czero.c" 25
for program in by_hand with_czero uneven; do
    "$mpicc" -std=c17 -O2 -Wall -Werror -I "$root/include" -I "$root/plugins/mpi/include" "$work/$program.c" \
        -o "$work/$program" -L"$folder" "-lczero-mpi-$flavour" -lczero -Wl,-rpath,"$folder" -lm
done
ranks=1
while [ $ranks -le "$most" ]; do
    "$mpirun" -n $ranks "$work/by_hand" >"$work/wanted"
    "$mpirun" -n $ranks "$work/with_czero" >"$work/found"
    same "$ranks ranks" "$work/wanted" "$work/found"
    "$mpirun" -n $ranks "$work/uneven" >"$work/found"
    [ "$(grep -c 'weights -\{0,1\}0.000 1.000 [12].[90][90]. 3.000' "$work/found")" = $ranks ] ||
        { cat "$work/found"; fail "uneven inputs on $ranks ranks"; }
    ranks=$((ranks + 1))
done
# Started by somebody whom its MPI does not know: not in silence.
SLURM_STEP_NUM_TASKS=2 "$work/with_czero" >"$work/found" 2>"$work/err"
grep -q '2 processes were started together, but MPI takes this one to be alone' "$work/err" ||
    { cat "$work/err"; fail "two trainings in silence"; }
"$mpirun" -n 2 "$work/with_czero" >"$work/found" 2>"$work/err"
! grep -q alone "$work/err" || fail "two ranks are said to be alone"
echo "from_mpi: fine"
