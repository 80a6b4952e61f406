#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench-mpi.sh PROGRAM WORD MPIRUN…: bench/mpi/collectives (given WORD, if it is not empty)
# on two processes, with Open MPI as it is (it binds two processes to cores), and as it is fastest:
# the heap kept and on large pages, as the buffers are, and for large all-reduces its segmented
# ring. czero is measured with the same settings each time.
set -eu
program=$1
word=$2
shift 2
tuned() {
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=30000000000:glibc.malloc.top_pad=67108864 \
        "$@"
}
"$@" --bind-to core -n 2 "$program" ${word:+"$word"} --small-pages --label default </dev/null
tuned "$@" --bind-to core -n 2 "$program" ${word:+"$word"} --label tuned </dev/null
tuned "$@" --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5 \
    --mca coll_tuned_allreduce_algorithm_segmentsize 262144 --bind-to core -n 2 "$program" ${word:+"$word"} \
    --only all_reduce --label 'tuned, ring' </dev/null
