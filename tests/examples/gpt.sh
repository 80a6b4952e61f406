#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/gpt.sh COMMAND…: what the main example promises, tried on a small model. Training
# does not depend on the number of ranks or the partition, nor in any bit on the number of threads,
# the run folder has what it should, a run that cannot learn says so, and bad options end with a
# sentence.
set -eu
steps=25
# shellcheck source=tests/examples/gpt_common.sh
. "$(dirname "$0")/gpt_common.sh"

# run NAME OPTIONS…: a small run into $work/NAME
run() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$@" $text --out "$work/$name" --layers 2 --channels 32 --heads 2 --block 32 --batch 12 \
        --steps $steps --text-bytes 200000 --warmup 5 --val-every 10 --val-windows 24 \
        --final-windows 120 --sample 40 $options >"$work/$name.out" 2>"$work/$name.err" ||
        { cat "$work/$name.out" "$work/$name.err" >&2; fail "$name failed"; }
}

# value NAME KEY: a number, word or null of a run's summary
value() {
    sed -n "s/^ *\"$2\": \([^,[]*\),*\$/\1/p" "$work/$1/summary.json"
}

# close NAME: as the unsharded run? 20 losses within 1e-4 of it, validation within 0.02.
close() {
    awk -v name="$1" '
        !/"loss":/ || seen[FILENAME]++ >= 20 { next }
        { sub(/.*"loss":/, ""); loss = $0 + 0; step = seen[FILENAME] }
        FILENAME == ARGV[1] { wanted[step] = loss; next }
        { off = (loss - wanted[step]) / wanted[step]; compared++ }
        off > 1e-4 || off < -1e-4 { print name ": step " step ": loss " loss ", unsharded " wanted[step]; bad = 1 }
        END { exit bad || compared != 20 }
    ' "$work/unsharded/metrics.jsonl" "$work/$1/metrics.jsonl" || fail "$1: other losses"
    awk -v a="$(value "$1" val_loss)" -v b="$(value unsharded val_loss)" \
        -v first="$(value "$1" loss_first)" \
        'BEGIN { exit !(a > 0 && a - b < 0.02 && b - a < 0.02 && a < first - 0.5) }' ||
        fail "$1: validation loss $(value "$1" val_loss), unsharded $(value unsharded val_loss)"
}

# complete NAME RANKS COPIES: is all there, with COPIES times the whole state on all ranks together?
complete() {
    for key in steps:$steps world_size:"$2"; do
        [ "$(value "$1" "${key%:*}")" = "${key#*:}" ] || fail "$1: summary.json: not $key"
    done
    for key in seconds tokens_per_second loss_first val_loss state_bytes_unsharded; do
        awk -v x="$(value "$1" $key)" 'BEGIN { exit !(x > 0) }' || fail "$1: summary.json: no $key"
    done
    awk -v ranks="$2" -v all="$(value "$1" state_bytes_unsharded)" -v copies="$3" '
        /"state_bytes_per_rank": \[/ { inside = 1; next }
        inside && /\]/ { exit }
        inside { count++; sum += $1 }
        END { exit !(count == ranks && sum == all * copies) }
    ' "$work/$1/summary.json" || fail "$1: summary.json: state bytes do not add up"
    timed "$1"
    [ "$(grep -c '"loss":' "$work/$1/metrics.jsonl")" = $steps ] || fail "$1: not a line per step"
    [ "$(grep -c '"val_loss":' "$work/$1/metrics.jsonl")" = 3 ] || fail "$1: validation at 10, 20, 25"
    [ "$(wc -c <"$work/$1/sample.txt")" -eq 41 ] || fail "$1: sample.txt"
    grep -q "state, rank $(($2 - 1)) " "$work/$1.out" || fail "$1: no table of bytes"
    [ ! -s "$work/$1.err" ] || fail "$1: on stderr: $(cat "$work/$1.err")"
    drawing "$1"
}

# timed NAME: a time for each phase of a step, of all steps together not longer than the run; and a
# table
timed() {
    for phase in data agree forward backward wait step loss; do
        value "$1" $phase
        grep -q "^  $phase *[0-9.]* ms" "$work/$1.out" || echo no line in the table
    done | awk -v steps=$steps -v run="$(value "$1" seconds)" '
        $1 > 0 { count++; sum += $1 }
        END { exit !(NR == 7 && count == 7 && sum * steps <= run) }
    ' || fail "$1: times of phases"
}

# drawing NAME: axes with their labels, a point of the curve for every step and every validation
drawing() {
    awk -v steps=$steps '
        { text = text $0 "\n" }
        /class="train"/ && /L/ { train = gsub(/[ML][0-9.]+ [0-9.]+/, "") }
        /class="val"/ && /L/ { validation = gsub(/[ML][0-9.]+ [0-9.]+/, "") }
        END {
            exit !(text ~ /^<svg [^<>]*>/ && text ~ /<\/svg>\n$/ && text ~ />step<\/text>/ &&
                text ~ />loss \(nats per character\)<\/text>/ && text ~ /training/ &&
                text !~ /[" -](nan|inf)/ && train == steps && validation == 3)
        }
    ' "$work/$1/loss.svg" || fail "$1: loss.svg is not what it should be"
    ! command -v xmllint >/dev/null || xmllint --noout "$work/$1/loss.svg" || fail "$1: not XML"
}

# refused WORD COMMAND…: ends, not with 0, and with a sentence on stderr that has WORD
refused() {
    word=$1
    shift
    if "$@" >"$work/refused.out" 2>"$work/refused.err"; then
        fail "accepted: $*"
    fi
    grep -q -e "$word.* .* " "$work/refused.err" ||
        fail "no sentence with $word for: $*: $(cat "$work/refused.err")"
}

options='--unsharded --ranks 1'
run unsharded "$@"
for ranks in 1 2 3 4 5; do # 5: the ranks have 3, 3, 2, 2, 2 sequences of 12
    options="--ranks $ranks"
    run "elements-$ranks" "$@"
    close "elements-$ranks"
    complete "elements-$ranks" $ranks 1
done
options='--ranks 2 --partition greedy'
run greedy-2 "$@"
close greedy-2
complete greedy-2 2 1
options='--ranks 2 --unsharded'
run unsharded-2 "$@"
close unsharded-2
complete unsharded-2 2 2
for half in 'bf16' 'f16' 'bf16 --no-master' 'f16 --no-master --bits 16'; do
    for ranks in 1 2; do
        options="--unsharded --ranks $ranks --dtype $half"
        run half "$@"
        complete half $ranks $ranks
        awk -v half="$(value half parameter_bytes)" -v all="$(value unsharded parameter_bytes)" \
            -v a="$(value half val_loss)" -v b="$(value unsharded val_loss)" \
            'BEGIN { exit !(2 * half == all && a - b < 0.03 && b - a < 0.03) }' ||
            fail "$options: validation loss $(value half val_loss), f32 $(value unsharded val_loss)"
    done
done
for ranks in 1 2 3 5; do # parameters once for all ranks: the same losses to the last digit
    options="--ranks $ranks --share"
    [ $ranks != 3 ] || options="$options --hook reduce_scatter"
    run "share-$ranks" "$@"
    complete "share-$ranks" $ranks 1
    for name in elements share; do
        sed -E 's/,"tokens_per_second":[^},]*//' "$work/$name-$ranks/metrics.jsonl" >"$work/$name.losses"
    done
    cmp "$work/elements.losses" "$work/share.losses" || fail "--share on $ranks ranks: other losses"
done
for threads in 1 2 3; do # 128 channels, or products are too small to be cut
    options="--ranks 2 --channels 128 --threads $threads"
    run "threads-$threads" "$@"
    grep -q "on 2 ranks of $threads thread" "$work/threads-$threads.out" ||
        fail "$threads threads: it does not say so"
    grep -o '"[a-z_]*loss":[^,}]*' "$work/threads-$threads/metrics.jsonl" >"$work/threads-$threads.losses"
    cmp "$work/threads-1.losses" "$work/threads-$threads.losses" || fail "$threads threads: other losses"
done

# no steps: a look at the untrained model; a run that diverges: all files, and a sentence
options='--steps 0'
run no-steps "$@"
[ "$(value no-steps loss_first)" = null ] || fail "no steps, but a first loss"
[ -s "$work/no-steps/loss.svg" ] && [ -s "$work/no-steps/sample.txt" ] || fail "no steps, no files"
options='--lr 1e30 --quiet'
run diverged "$@"
[ "$(value diverged val_loss)" = null ] || fail "a loss after --lr 1e30"
[ -s "$work/diverged/loss.svg" ] && [ -s "$work/diverged/sample.txt" ] || fail "diverged: no files"
[ "$(grep -c '"loss":null' "$work/diverged/metrics.jsonl")" -gt 10 ] || fail "diverged: no nulls"
grep -q 'not a finite number' "$work/diverged.err" || fail "diverged, and says nothing"
[ ! -s "$work/diverged.out" ] || fail "--quiet is not"

set -- "$@" --out "$work/refused" --steps 0 # short, should it be taken after all
refused dtype "$@" --dtype f64
refused --ranks "$@" --ranks 0
refused --ranks "$@" --ranks two
refused --threads "$@" --threads 0
refused --heads "$@" --heads 3
refused --unsharded "$@" --share --unsharded
refused --lr "$@" --lr nan
refused --partition "$@" --partition none
refused "'run'" "$@" run
refused "$work/none" "$@" --text "$work/none"
echo short >"$work/short"
refused '6 characters' "$@" --text "$work/short"
awk 'BEGIN { for (i = 0; i < 9999; i++) print "a line of text" }' >"$work/lines"
refused "$work/lines" "$@" --text "$work/lines" --out "$work/lines/run" # a file is no folder
echo "gpt.sh: all as promised"
