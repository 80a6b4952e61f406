#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/mpi/examples.sh EXAMPLES RANKS MPIRUN…: the examples give the same bits as MPI processes and
# as thread ranks: the weights of the MLP, every loss of the GPT. One that uses MPI itself gives the
# same bits with shared memory and by messages, and to 4 digits the losses of one process.
set -eu
examples=$1
ranks=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPENBLAS_NUM_THREADS=1

fail() {
    echo "examples.sh: $*" >&2
    exit 1
}

if [ -x "$examples/05_mpi" ]; then
    "$examples/05_mpi" >"$work/one" # a single process, without mpirun
    "$@" "$examples/05_mpi" >"$work/all"
    CZERO_MPI_WINDOW=0 "$@" "$examples/05_mpi" >"$work/messages"
    cat "$work/one" "$work/all"
    [ "$(grep -c loss "$work/all")" = 6 ] || fail "05_mpi does not print 6 losses"
    cmp "$work/all" "$work/messages" || fail "05_mpi has other losses where data go by messages"
    for run in one all; do
        awk '{ printf "%s %d %s %.4f\n", $1, $2, $3, $4 }' "$work/$run" >"$work/$run.short"
    done
    cmp "$work/one.short" "$work/all.short" || fail "05_mpi has other losses than one process"
fi

if [ -x "$examples/03_mnist" ]; then
    CZERO_RANKS=$ranks "$examples/03_mnist" 100 >"$work/threads"
    "$@" "$examples/03_mnist" 100 >"$work/launched"
    cat "$work/threads"
    grep -q 'weights [0-9a-f]' "$work/threads" || fail "03_mnist prints no weights"
    cmp "$work/threads" "$work/launched" || fail "03_mnist under mpirun differs from thread ranks"
fi

small="--layers 2 --channels 32 --heads 2 --block 32 --batch 6 --steps 12 --final-windows 12
    --sample 0 --text-bytes 100000 --quiet"
if [ -x "$examples/12_gpt" ] && bible -f gen1:1 >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    "$examples/12_gpt" $small --ranks "$ranks" --out "$work/a"
    # shellcheck disable=SC2086
    "$@" "$examples/12_gpt" $small --out "$work/b"
    for run in a b; do
        sed -E 's/,"tokens_per_second":[^},]*//' "$work/$run/metrics.jsonl" >"$work/$run.losses"
        grep -q "\"world_size\": $ranks" "$work/$run/summary.json" || fail "$run: another world size"
    done
    [ "$(grep -c '"loss"' "$work/a.losses")" = 12 ] || fail "not 12 losses"
    cmp "$work/a.losses" "$work/b.losses" || fail "12_gpt under mpirun differs from thread ranks"

    # parameters once for all ranks
    # shellcheck disable=SC2086
    "$@" "$examples/12_gpt" $small --share --out "$work/c"
    sed -E 's/,"tokens_per_second":[^},]*//' "$work/c/metrics.jsonl" >"$work/c.losses"
    cmp "$work/a.losses" "$work/c.losses" || fail "12_gpt --share under mpirun differs from thread ranks"

    # stopped as MPI processes by a signal, it goes on as thread ranks, and the other way round
    # shellcheck disable=SC2086
    "$@" "$examples/12_gpt" $small --steps 100000 --val-every 100000 --out "$work/e" --save "$work/e.ck" --save-every 3 &
    job=$!
    for _ in $(seq 600); do
        [ ! -e "$work/e.ck/00000001-step-3/index.json" ] || break
        sleep 0.1
    done
    kill -USR1 $job # after SIGTERM mpirun kills them a second later
    wait $job || fail "12_gpt ended with $? after SIGUSR1 to mpirun"
    for generation in "$work/e.ck"/*; do
        step=${generation##*-}
    done
    for run in e f; do # f was not there before: it begins from the beginning
        # shellcheck disable=SC2086
        "$examples/12_gpt" $small --steps 100000 --val-every 100000 --ranks "$ranks" --out "$work/$run" \
            --save "$work/$run.ck" --resume --stop-at $((step + 4))
    done
    # shellcheck disable=SC2086
    "$@" "$examples/12_gpt" $small --steps 100000 --val-every 100000 --out "$work/e" --save "$work/e.ck" --resume \
        --stop-at $((step + 8))
    sed -E 's/,"tokens_per_second":[^},]*//' "$work/e/metrics.jsonl" | head -n $((step + 4)) >"$work/e.losses"
    sed -E 's/,"tokens_per_second":[^},]*//' "$work/f/metrics.jsonl" >"$work/f.losses"
    [ "$(wc -l <"$work/e/metrics.jsonl")" = $((step + 8)) ] || fail "12_gpt did not go on under mpirun"
    cmp "$work/e.losses" "$work/f.losses" || fail "12_gpt stopped under mpirun has other losses"

    # with hooks: the same losses; of what all_reduce sends about as much: headers are fewer in one
    # way, and between processes a bucket that fits beside its header goes to all ranks whole
    small="$small --hook all_reduce,reduce_scatter,fp16_compress(powersgd),quantize_per_tensor,post_local_sgd"
    # shellcheck disable=SC2086
    "$examples/12_gpt" $small --ranks "$ranks" --out "$work/c"
    # shellcheck disable=SC2086
    "$@" "$examples/12_gpt" $small --out "$work/d"
    for run in c d; do
        grep -vE '"(seconds_per_step|czero|(all|gradients|parameters)[a-z_]*)":' "$work/$run/summary.json" >"$work/$run.summary"
    done
    [ "$(grep -c '"val_loss"' "$work/c.summary")" = 5 ] || fail "not 5 hooks"
    cmp "$work/c.summary" "$work/d.summary" || fail "12_gpt --hook under mpirun differs from thread ranks"
    for run in c d; do
        sed -n 's/.*"all_to_all_reduce": \([0-9.]*\).*/\1/p' "$work/$run/summary.json" >"$work/$run.ratios"
    done
    paste "$work/c.ratios" "$work/d.ratios" | awk '{ lines++; if ($2 < 0.9 * $1 || $2 > 1.1 * $1) bad = 1 }
        END { exit bad || lines != 5 }' || fail "12_gpt --hook under mpirun sends another share"
fi
