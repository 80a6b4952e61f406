#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench.sh [--quick] PROGRAMS OUT [MPIRUN…]: run every benchmark that was built in PROGRAMS, one after the
# other, those in its folder mpi on two processes (not those in multihost, which have a script of their own), and leave
# OUT/results.json. --quick: only whether the programs that know this word work, in seconds.
set -eu
quick=
[ "$1" != --quick ] || { quick=--quick; shift; }
programs=$1
out=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
# Open MPI as it is (two processes are bound to cores), and as it is fastest: the heap kept and on large pages, as the
# buffers are, and for large all-reduces its segmented ring. czero is measured with the same settings each time.
# on_mpi PROGRAM MPIRUN…
on_mpi() {
    program=$1
    shift
    case $program in
    */collectives)
        "$@" --bind-to core -n 2 "$program" $word --small-pages --label default </dev/null
        tuned "$@" --bind-to core -n 2 "$program" $word --label tuned </dev/null
        tuned "$@" --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5 \
            --mca coll_tuned_allreduce_algorithm_segmentsize 262144 \
            --bind-to core -n 2 "$program" $word --only all_reduce --label 'tuned, ring' </dev/null
        ;;
    *) "$@" -n 2 "$program" $word </dev/null ;;
    esac
}
tuned() {
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=30000000000:glibc.malloc.top_pad=67108864 \
        "$@"
}
knows_quick=' bench_limits bench_collectives bench_step bench_rules collectives step '
mkdir -p "$out"
CZ_BENCH_RESULTS=$(cd "$out" && pwd)/results.lines
export CZ_BENCH_RESULTS
: >"$CZ_BENCH_RESULTS"

find "$programs" \( -name CMakeFiles -o -name multihost \) -prune -o -type f -perm -u+x -print | LC_ALL=C sort |
while read -r program; do
    name=${program##*/}
    case $knows_quick in
    *" $name "*) word=$quick ;;
    *) [ -z "$quick" ] || continue; word= ;;
    esac
    echo "== ${program#"$programs"/}"
    case $program in
    "$programs"/mpi/*) [ $# -eq 0 ] || on_mpi "$program" "$@" ;;
    *bench_checkpoint*) (cd "$out" && "$program" </dev/null) ;; # the folder in which they write
    *) "$program" $word </dev/null ;;
    esac
done

version=$(sed -n 's/^#define CZ_VERSION_[A-Z]* *\([0-9]*\)$/\1/p' "$root/include/czero/version.h" | paste -sd.)
{
    printf '{"czero": "%s",\n "processor": "%s", "cpus": %s, "memory_kib": %s, "load": %s,\n "results": [\n' "$version" \
        "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)" "$(getconf _NPROCESSORS_ONLN)" \
        "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)" "$(cut -d' ' -f1 /proc/loadavg)"
    sed '$!s/$/,/' "$CZ_BENCH_RESULTS"
    printf ']}\n'
} >"$out/results.json"
rm -f "$CZ_BENCH_RESULTS"
echo && echo "written: $out/results.json"
