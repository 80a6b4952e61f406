#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench-peers.sh BUILD FOLDER [RANKS [ROUNDS]]: saving a training of GPT-2 124M's sizes by PyTorch (consolidate,
# torch.save, fsync) and by czero, in turns, into FOLDER; then into memory, where no medium limits either.
set -eu
bench=$1/bench/bench_checkpoint
folder=$2
ranks=${3:-2}
rounds=${4:-3}
peer=$(dirname "$0")/../bench/peers/checkpoint.py
python=/usr/bin/python3 # Debian's, which has its PyTorch
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: no PyTorch for $python (package python3-torch)"; exit 0; }

# compare FOLDER: a line for each round
compare() {
    work=$(mktemp -d "$1/peers-XXXXXX")
    for _ in $(seq "$rounds"); do
        theirs=$("$python" "$peer" "$work" "$ranks" 1 2>"$work/errors" | cut -d' ' -f1) && [ -n "$theirs" ] ||
            { cat "$work/errors" >&2; exit 1; }
        rm -f "$work/peer-store"
        "$bench" "$work" "$ranks" 1 | awk -v theirs="$theirs" '
            /^save / { save = $2 }
            /^save_async/ { call = $4 }
            END { printf "  PyTorch %6.2f s   czero save %6.3f s (%.1f x)   save_async, the call %.3f s (%.0f x)\n",
                  theirs, save, theirs / save, call, theirs / call }'
    done
    rm -rf "$work"
}
echo "consolidate and save, $ranks ranks, PyTorch $("$python" -c 'import torch; print(torch.__version__)')"
echo "into $folder:"
compare "$folder"
if [ -d /dev/shm ]; then
    echo "into memory (/dev/shm):"
    compare /dev/shm
fi
