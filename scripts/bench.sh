#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench.sh [--quick] PROGRAMS OUT [MPIRUN…]: run every benchmark that was built in PROGRAMS,
# one after the other, those in its folder mpi on two processes (not those in multihost, which have
# a script of their own), and leave OUT/results.json. --quick: only whether the programs that know
# this word work, in seconds. ONLY in the environment: these programs, by name.
set -eu
quick=
[ "$1" != --quick ] || { quick=--quick; shift; }
programs=$1
out=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
knows_quick=' bench_limits bench_collectives bench_step bench_rules bench_pass bench_parts bench_muon collectives small step '
mkdir -p "$out"
CZ_BENCH_RESULTS=$(cd "$out" && pwd)/results.lines
export CZ_BENCH_RESULTS
: >"$CZ_BENCH_RESULTS"

find "$programs" \( -name CMakeFiles -o -name multihost \) -prune -o -type f -perm -u+x -print | LC_ALL=C sort |
while read -r program; do
    name=${program##*/}
    case " ${ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
    begun=$(date +%s)
    case $knows_quick in
    *" $name "*) word=$quick ;;
    *) [ -z "$quick" ] || continue; word= ;;
    esac
    echo "== ${program#"$programs"/}"
    case $program in
    "$programs"/mpi/*)
        if [ $# -eq 0 ]; then
            echo "skipped: no mpirun"
        elif [ "$name" = collectives ]; then
            "$root/scripts/bench-mpi.sh" "$program" "$word" "$@"
        else
            "$@" -n 2 "$program" $word </dev/null
        fi
        ;;
    *bench_checkpoint_io) "$program" "$out" 256 3 </dev/null ;;
    *bench_checkpoint) "$program" "$out" 2 3 </dev/null ;;
    *) "$program" $word </dev/null ;;
    esac
    echo "   ($(($(date +%s) - begun)) s)"
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
