#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/mpi/place.sh MACHINES turns|blocks PROGRAM…: a rank that takes itself for one on another of
# some machines, which have ranks in turn or one block each. Under mpirun.
machines=$1
how=$2
shift 2
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
size=${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-1}}
case $how in
turns) CZERO_MPI_NODE=machine$((rank % machines)) ;;
*) CZERO_MPI_NODE=machine$((rank * machines / size)) ;;
esac
export CZERO_MPI_NODE
exec "$@"
