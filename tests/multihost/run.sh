#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/multihost/run.sh DIR COMMAND…: Open MPI on the hosts czh0 and czh1 (or CZ_HOSTS of them)
# that up.sh made in DIR, two ranks each (or CZ_RANKS_OF_HOST): shared memory inside a host, TCP
# between them. COMMAND may begin with options of mpirun. Ends after 100 s at the latest.
set -eu
dir=$(realpath "$1")
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
each=${CZ_RANKS_OF_HOST:-2}
count=${CZ_HOSTS:-2}
hosts=$(seq -f "czh%g:$each" -s , 0 $((count - 1)))
exec timeout -k 5 250 "$dir/agent" czh0 "cd $PWD && exec mpirun.openmpi \
    --host $hosts -n $((count * each)) \
    --bind-to none --mca orte_tmpdir_base $dir --mca plm_rsh_agent $dir/agent --mca pml ob1 \
    --mca btl self,vader,tcp --mca btl_tcp_if_include cz0 --mca oob_tcp_if_include cz0 $*"
