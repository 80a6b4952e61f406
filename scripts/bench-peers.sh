#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench-peers.sh BUILD OUT [PART…]: the same work by others and by czero, in turns; parts
# are rules (PyTorch's optimizers), muon, zero (its DDP and ZeroRedundancyOptimizer), train (both on a
# small GPT), mpi (Open MPI's collectives), checkpoint (consolidate and save); otherwise all. The
# command that starts MPI jobs is in MPIRUN. Leaves OUT/peers.json.
set -eu
build=$1
out=$2
shift 2
parts=${*:-rules muon zero train mpi checkpoint}
ranks=2
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
python=${PYTHON:-/usr/bin/python3} # Debian's, which has its PyTorch
export PYTHONDONTWRITEBYTECODE=1
wants() { case " $parts " in *" $1 "*) true ;; *) false ;; esac; }

torch=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null) || torch=
if [ -z "$torch" ]; then
    echo "skipped, all that PyTorch does: none for $python (package python3-torch)"
else
    echo "PyTorch $torch, $(getconf _NPROCESSORS_ONLN) processors; medians, and medians of ratios in the same round"
    chosen=
    for part in rules muon zero train; do
        ! wants $part || chosen="$chosen $part"
    done
    # shellcheck disable=SC2086
    [ -z "$chosen" ] || "$python" "$here/bench/peers/compare.py" "$build" "$out" $chosen
fi

if wants mpi && [ -n "${MPIRUN:-}" ] && [ -x "$build/bench/mpi/collectives" ]; then
    CZ_BENCH_RESULTS=$out/peers.lines
    export CZ_BENCH_RESULTS
    : >"$CZ_BENCH_RESULTS"
    # shellcheck disable=SC2086
    "$here/scripts/bench-mpi.sh" "$build/bench/mpi/collectives" --large $MPIRUN
    if [ -s "$out/peers.json" ]; then # one more place for rows, one in a line
        sed '/^]}$/d; s/}$/},/' "$out/peers.json" >"$out/peers.all"
    else
        echo '{"results": [' >"$out/peers.all"
    fi
    sed '$!s/$/,/' "$CZ_BENCH_RESULTS" >>"$out/peers.all"
    echo ']}' >>"$out/peers.all"
    mv "$out/peers.all" "$out/peers.json"
    rm -f "$CZ_BENCH_RESULTS"
fi

# checkpoint FOLDER ROUNDS: a line for each round
checkpoint() {
    work=$(mktemp -d "$1/peers-XXXXXX")
    for _ in $(seq "$2"); do
        theirs=$("$python" "$here/bench/peers/checkpoint.py" "$work" "$ranks" 1 2>"$work/errors" | cut -d' ' -f1)
        [ -n "$theirs" ] || { cat "$work/errors" >&2; exit 1; }
        rm -f "$work/peer-store"
        "$build/bench/bench_checkpoint" "$work" "$ranks" 1 | awk -v theirs="$theirs" '
            /^save / { save = $2 }
            /^save_async/ { call = $4 }
            END { printf "  PyTorch %6.2f s   czero save %6.3f s (%.1f x)   save_async, the call %.3f s (%.0f x)\n",
                  theirs, save, theirs / save, call, theirs / call }'
    done
    rm -rf "$work"
}
if wants checkpoint && [ -n "$torch" ]; then
    echo && echo "consolidate and save, $ranks ranks, GPT-2 124M's AdamW"
    echo "into $out:"
    checkpoint "$out" 2
    if [ -d /dev/shm ]; then # where no medium limits either
        echo "into memory (/dev/shm):"
        checkpoint /dev/shm 1
    fi
fi
