#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/gpt_hooks.sh COMMAND…: the main example with communication hooks. Those that lose
# nothing give the losses of no hook, to the last digit; the others stay near and send less; the
# comparison has it all.
set -eu
steps=20
# shellcheck source=tests/examples/gpt_common.sh
. "$(dirname "$0")/gpt_common.sh"

# run NAME COMMAND…: a small run with $options into $work/NAME
run() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$@" $text --out "$work/$name" --layers 2 --channels 32 --heads 2 --block 32 --batch 10 \
        --steps $steps --text-bytes 200000 --warmup 5 --val-every 10 --val-windows 24 \
        --final-windows 60 --sample 40 $options >"$work/$name.out" 2>"$work/$name.err" ||
        { cat "$work/$name.out" "$work/$name.err" >&2; fail "$name failed"; }
    [ ! -s "$work/$name.err" ] || fail "$name: on stderr: $(cat "$work/$name.err")"
}

# losses RUN: of each step and validation, with all digits
losses() {
    sed -E 's/,"tokens_per_second":[^},]*//' "$work/$1/metrics.jsonl"
}

same() {
    losses "$1" >"$work/a"
    losses "$2" >"$work/b"
    [ "$(grep -c '"loss":' "$work/a")" = $steps ] || fail "$1: not a line per step"
    cmp "$work/a" "$work/b" || fail "$1 and $2: other losses"
}

# value RUN HOOK KEY: a number of that hook in a comparison's summary
value() {
    awk -v hook="$2" -v key="\"$3\":" '
        $1 == "\"hook\":" { inside = $2 == "\"" hook "\"," }
        inside && $1 == key { gsub(/[,"]/, "", $2); print $2; exit }
    ' "$work/$1/summary.json"
}

holds() {
    awk "BEGIN { exit !($1) }" || fail "not so: $1 ($2)"
}

# How much of all_reduce's gradient bytes each sends at most once it compresses, 2 ranks, small
# matrices.
compressed='fp16_compress:0.6 bf16_compress:0.6 mixed_precision:0.6 quantize_per_tensor:0.35
    quantize_per_channel:0.37 powersgd:0.3 powersgd_rank2:0.35 fp16_compress(powersgd):0.2
    batched_powersgd:0.2 batched_powersgd_rank2:0.2 post_local_sgd:0.1'
hooks=all_reduce,reduce_scatter
for entry in $compressed; do
    hooks=$hooks,${entry%:*}
done

# compared RUN: each hook by the summary, the table and the picture
compared() {
    all=$(value "$1" all_reduce gradients_last)
    loss=$(value "$1" all_reduce val_loss)
    holds "$all > 0 && $loss > 0" "$1 all_reduce"
    holds "$(value "$1" reduce_scatter gradients_last) < 0.6 * $all" "$1 reduce_scatter"
    holds "$(value "$1" reduce_scatter val_loss) == $loss" "$1 reduce_scatter"
    for entry in $compressed; do
        hook=${entry%:*}
        holds "$(value "$1" "$hook" gradients_last) < ${entry#*:} * $all" "$1 $hook"
        holds "$(value "$1" "$hook" gradients_to_all_reduce) < 0.7" "$1 $hook"
        # a whole bucket as a matrix of low rank is far from what it was
        near=0.05
        case $hook in batched*) near=0.6 ;; esac
        holds "$(value "$1" "$hook" val_loss) - $loss < $near" "$1 $hook"
        holds "$loss - $(value "$1" "$hook" val_loss) < $near" "$1 $hook"
        [ "$(grep -cF "  $hook " "$work/$1.out")" = 2 ] || fail "$1: $hook is not in both tables"
        grep -qF ">$hook</text>" "$work/$1/loss.svg" || fail "$1: $hook is not in the picture"
    done
    [ "$(grep -c 'class="run".*L' "$work/$1/loss.svg")" = 13 ] || fail "$1: not 13 curves"
    [ "$(sed -n 's/^<path class="run" \(.*\) d=".*L.*/\1/p' "$work/$1/loss.svg" | sort -u | wc -l)" = 13 ] ||
        fail "$1: curves look alike"
    ! command -v xmllint >/dev/null || xmllint --noout "$work/$1/loss.svg" || fail "$1: not XML"
    [ "$(grep -c '"step":' "$work/$1/summary.json")" = 130 ] || fail "$1: not 10 losses for each"
}

options="--ranks 2"
run plain-2 "$@"
options="--ranks 2 --hook $hooks"
run hooks-2 "$@"
same plain-2 hooks-2/all_reduce
same plain-2 hooks-2/reduce_scatter
same hooks-2/bf16_compress hooks-2/mixed_precision
compared hooks-2

# whole optimizers; of 11 ranks one has no part of the batch
for ranks in 1 3 11; do
    options="--ranks $ranks"
    run plain-$ranks "$@"
    options="--ranks $ranks --unsharded --hook all_reduce,reduce_scatter,powersgd --compress-after 0"
    run whole-$ranks "$@"
    same plain-$ranks whole-$ranks/all_reduce
    same plain-$ranks whole-$ranks/reduce_scatter
done
options='--ranks 2 --hook powersgd --powersgd-rank 4 --powersgd-loops --compress-after 2'
run loops "$@"
options='--ranks 2 --hook powersgd --powersgd-rank 4 --compress-after 2'
run blas "$@"
grep -q '"hook": "powersgd"' "$work/blas/summary.json" || fail "blas: no hook in summary.json"
grep -q 'a rank sends in a step, on average: [0-9]* bytes of gradients' "$work/blas.out" ||
    fail "blas: no line of bytes"
loss_of() {
    sed -n 's/^ *"val_loss": \(.*\),$/\1/p' "$work/$1/summary.json"
}
holds "$(loss_of loops) - $(loss_of blas) < 0.01 && $(loss_of blas) - $(loss_of loops) < 0.01" loops

# refused WORDS HOOK…: not taken, with a sentence that has WORDS
refused() {
    words=$1 hook=$2
    shift 2
    if "$@" --steps 0 --out "$work/refused" --hook "$hook" >/dev/null 2>"$work/refused.err"; then
        fail "accepted: $hook"
    fi
    grep -qF -e "$words" "$work/refused.err" ||
        fail "no '$words' for $hook: $(cat "$work/refused.err")"
}
refused 'powersgd_rank2, batched_powersgd' nope "$@"
refused 'fp16_compress, bf16_compress' 'bf16_compress(nope)' "$@"
refused 'would train different models' no_op "$@"
refused 'would train different models' 'fp16_compress(no_op)' "$@"
refused 'watches another hook' all_reduce,record "$@"
refused 'sharded optimizer steps' zero_step "$@"
refused 'goes around no other' 'powersgd(all_reduce)' "$@"
refused twice powersgd,powersgd "$@"
echo "gpt_hooks.sh: all as promised"
