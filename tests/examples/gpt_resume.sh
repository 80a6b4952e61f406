#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/gpt_resume.sh COMMAND…: the main example stops, is stopped, and goes on as if it
# had not; on other numbers of ranks up to rounding. What is damaged, missing or of another run is
# said.
set -eu
steps=24
# shellcheck source=tests/examples/gpt_common.sh
. "$(dirname "$0")/gpt_common.sh"
small="$text --layers 2 --channels 32 --heads 2 --block 32 --batch 12 --text-bytes 200000 --warmup 5
    --val-every 10 --val-windows 24 --final-windows 60 --sample 40"

# run NAME RANKS OPTIONS…: a small run into $work/NAME, added to $work/NAME.out. The command is in
# $@ of the script.
run() {
    name=$1
    ranks=$2
    options=$3
    shift 3
    # shellcheck disable=SC2086
    "$@" $small --steps $steps --out "$work/$name" --ranks "$ranks" $options \
        >>"$work/$name.out" 2>"$work/$name.err" ||
        { cat "$work/$name.out" "$work/$name.err" >&2; fail "$name failed"; }
}

# losses NAME: of each step and validation, with all digits
losses() {
    sed -E 's/,"tokens_per_second":[^},]*//' "$work/$1/metrics.jsonl"
}

# same NAME NAME: all they leave but times, and marks of where they went on
same() {
    losses "$1" >"$work/a"
    losses "$2" >"$work/b"
    cmp "$work/a" "$work/b" || fail "$1 and $2: other losses"
    cmp "$work/$1/sample.txt" "$work/$2/sample.txt" || fail "$1 and $2: other texts"
    grep -v '"resumed"' "$work/$1/loss.svg" >"$work/a"
    grep -v '"resumed"' "$work/$2/loss.svg" >"$work/b"
    cmp "$work/a" "$work/b" || fail "$1 and $2: other curves"
    for name in "$1" "$2"; do
        grep -E '"(steps|loss_first|loss_last|val_loss|[a-z]*_last)":' "$work/$name/summary.json" >"$work/$name.kept"
    done
    [ "$(wc -l <"$work/$1.kept")" -ge 5 ] || fail "$1: summary.json"
    cmp "$work/$1.kept" "$work/$2.kept" || fail "$1 and $2: other summaries"
}

# near NAME NAME: all losses within 1e-4
near() {
    losses "$1" >"$work/a"
    losses "$2" >"$work/b"
    paste -d' ' "$work/a" "$work/b" | sed -E 's/[^0-9.e-]+/ /g' | awk '
        { first = 2; second = NF / 2 + 2 }
        $1 != $(second - 1) || ($first - $second) ^ 2 > 1e-8 { print; bad = 1 }
        END { exit bad || NR < 20 }
    ' || fail "$1 and $2: other losses"
}

# says NAME WORDS
says() {
    grep -qF -e "$2" "$work/$1.out" || fail "$1 does not say '$2': $(cat "$work/$1.out")"
}

# The same number of ranks: the same bits, for each way to keep the optimizer's state.
for way in '--partition elements' '--partition greedy --ema 0.9' --unsharded '--hook bf16_compress' \
    '--dtype bf16 --bits 16' '--bits 8'; do
    for ranks in 2 3; do
        base=$(printf %s "$ranks$way" | tr -d ' -')
        run "$base" $ranks "$way" "$@"
        run "$base-split" $ranks "$way --save $work/$base.ck --save-every 5 --stop-at 50%" "$@"
        says "$base-split" "stopped after step 12 of 24; saved in $work/$base.ck"
        [ "$(cd "$work/$base.ck" && echo *)" = "00000002-step-10 00000003-step-12" ] || fail "$base: which are kept"
        run "$base-split" $ranks "$way --save $work/$base.ck --resume" "$@"
        says "$base-split" "resume after step 12 of 24 on $ranks ranks: generation 3 in"
        same "$base" "$base-split"
    done
done
# A loss scale goes on from where it was; a power of two changes no bit of bf16.
scaled="--dtype bf16 --bits 16 --loss-scale dynamic --save $work/scaled.ck"
run scaled 2 "$scaled --stop-at 50%" "$@"
run scaled 2 "$scaled --resume" "$@"
losses 2dtypebf16bits16 >"$work/a"
losses scaled | cmp - "$work/a" || fail "scaled: other losses"
grep -q '"good_steps":24[,}]' "$work"/scaled.ck/*-step-24/index.json || fail "scaled: not 24 good steps"
# It is over: the same end once more.
run again 2 "--save $work/2partitionelements.ck --resume" "$@"
losses again | head -n 26 >"$work/head"
losses 2partitionelements | head -n 26 | cmp - "$work/head" || fail "again: other losses"

# Other numbers of ranks, twice, and another partition
run moved 2 "--save $work/moved.ck --keep 1 --stop-at 8" "$@"
run moved 3 "--save $work/moved.ck --keep 1 --resume --stop-at 16 --partition greedy" "$@"
run moved 1 "--save $work/moved.ck --keep 1 --resume" "$@"
says moved "resume after step 8 of 24 on 3 ranks: generation 1 in $work/moved.ck, saved by 2 ranks"
says moved "resume after step 16 of 24 on 1 rank: generation 2 in $work/moved.ck, saved by 3 ranks"
says moved "resumed after step 16 on 1 rank: mean loss"
near 2partitionelements moved
[ "$(grep -c '"resumed"' "$work/moved/loss.svg")" = 2 ] || fail "moved: no two marks in the picture"
grep -qF 'resumed on 3 ranks</text>' "$work/moved/loss.svg" || fail "moved: no name at the mark"
! command -v xmllint >/dev/null || xmllint --noout "$work/moved/loss.svg" || fail "moved: not XML"
[ "$(tr -d ' \n' <"$work/moved/summary.json" | grep -o '"resumed":[^]]*')" = \
    '"resumed":[{"step":8,"world_size":3},{"step":16,"world_size":1}' ] || fail "moved: summary.json"

# Nothing to go on from: from the beginning
run fresh 2 "--save $work/fresh.ck --resume" "$@"
says fresh "no complete checkpoint in $work/fresh.ck: from the beginning"
same 2partitionelements fresh

# signalled NAME SIGNAL RANKS: a long run is told to stop once it has saved, at whatever step that
# is
signalled() {
    name=$1
    signal=$2
    ranks=$3
    shift 3
    # shellcheck disable=SC2086
    "$@" $small --steps 100000 --out "$work/$name" --ranks "$ranks" --save "$work/$name.ck" --save-every 3 \
        >"$work/$name.out" 2>&1 &
    job=$!
    for _ in $(seq 600); do
        ls "$work/$name.ck"/*-step-*/index.json >/dev/null 2>&1 && break # any: the first ones do not stay
        sleep 0.1
    done
    kill -"$signal" "$job"
    wait "$job" || fail "$name: ended with $?: $(cat "$work/$name.out")"
    step=$(sed -n 's/.*stopped after step \([0-9]*\) of 100000; .*/\1/p' "$work/$name.out")
    [ -n "$step" ] || fail "$name: $(cat "$work/$name.out")"
}
steps=100000
for signal in TERM INT; do
    signalled on-$signal $signal 2 "$@"
    run on-$signal 2 "--save $work/on-$signal.ck --resume --stop-at $((step + 4))" "$@"
    run through-$signal 2 "--save $work/through-$signal.ck --stop-at $((step + 4))" "$@"
    losses on-$signal >"$work/a"
    losses through-$signal | cmp - "$work/a" || fail "$signal: other losses"
done
steps=24

# A byte of the newest one is another
run damaged 2 "--save $work/damaged.ck --save-every 5 --stop-at 12" "$@"
part=$work/damaged.ck/00000003-step-12/rank-00001-of-00002.safetensors
dd if="$part" of="$work/byte" bs=1 skip=20000 count=1 2>/dev/null
tr '\000-\377' '\200-\377\000-\177' <"$work/byte" |
    dd of="$part" bs=1 seek=20000 conv=notrunc 2>/dev/null

# refused WORDS OPTIONS COMMAND…: ends, not with 0, and with a sentence that has WORDS
refused() {
    words=$1
    options=$2
    shift 2
    # shellcheck disable=SC2086
    if "$@" $small --steps $steps --out "$work/refused" --ranks 2 $options \
        >"$work/refused.out" 2>"$work/refused.err"; then
        fail "accepted: $options"
    fi
    grep -qF -e "$words" "$work/refused.err" || fail "no '$words': $(cat "$work/refused.err")"
}
refused "$part" "--save $work/damaged.ck --resume" "$@"
run damaged 2 "--save $work/damaged.ck --resume --fall-back" "$@"
says damaged "generation 3 (step 12) was passed over"
says damaged "resume after step 10 of 24 on 2 ranks: generation 2 in"
same 2partitionelements damaged
for part in "$work"/damaged.ck/*/rank-00000-of-00002.safetensors; do
    truncate -s 100 "$part"
done
refused 'no undamaged generation' "--save $work/damaged.ck --resume --fall-back" "$@"

refused 'needs --save' --resume "$@"
refused 'needs --save' '--stop-at 3' "$@"
refused 'goes with --resume' "--save $work/no --fall-back" "$@"
refused '--stop-at' "--save $work/no --stop-at 0" "$@"
refused '--stop-at' "--save $work/no --stop-at 100%" "$@"
refused 'goes without --hook' '--loss-scale 8 --hook all_reduce' "$@"
refused 'for one run' "--save $work/no --hook all_reduce,powersgd" "$@"
refused 'own state' "--save $work/no --hook fp16_compress(powersgd)" "$@"
refused 'own state' "--save $work/no --hook post_local_sgd" "$@"
refused '--batch is 8' "--save $work/moved.ck --resume --batch 8" "$@"
refused '--seed is 5' "--save $work/moved.ck --resume --seed 5" "$@"
refused "the text's fingerprint" "--save $work/moved.ck --resume --text-bytes 150000" "$@"
refused 'step 24 already' "--save $work/moved.ck --resume --steps 23" "$@"
refused "parameter 'wpe.weight' has shape [32, 48], in the checkpoint [32, 32]" "--save $work/moved.ck --resume --channels 48" "$@"
refused "$work/moved.out" "--save $work/moved.out" "$@" # a file is no folder
echo "gpt_resume.sh: all as promised"
