#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/examples/gpt_parts.sh CZERO GPT [COUNTS MPIRUN FLAG]: the main example trained in parts
# leaves the same bytes on any number of ranks: the log of losses and fingerprints, the text, and
# the last checkpoint as one file. With MPIRUN, on these numbers of processes.
set -eu
czero=$1
gpt=$2
shift 2
# shellcheck source=tests/examples/gpt_common.sh
. "$(dirname "$0")/gpt_common.sh"
small="$text --layers 2 --channels 32 --heads 2 --block 32 --batch 12 --text-bytes 200000 --warmup 5 --steps 18
    --val-every 7 --val-windows 25 --final-windows 60 --sample 40 --quiet --proof"

# run NAME OPTIONS…: a small run into $work/NAME; $launch is what the command begins with, if
# anything
launch=
run() {
    name=$1
    shift
    # shellcheck disable=SC2086
    $launch "$gpt" $small "$@" --out "$work/$name" --save "$work/$name.ck" >"$work/$name.out" 2>&1 ||
        { cat "$work/$name.out" >&2; fail "$name failed"; }
}

# ended NAME: its log without speeds, and its last checkpoint as one file
ended() {
    sed -E 's/,"tokens_per_second":[^},]*//' "$work/$1/metrics.jsonl" >"$work/$1.losses"
    [ "$(wc -l <"$work/$1.losses")" = 21 ] || fail "$1: not 18 losses and 3 validations"
    "$czero" convert --quiet "$work/$1.ck" "$work/$1.safetensors" 2>"$work/convert.out" ||
        fail "$1: $(cat "$work/convert.out")"
}

# same NAME NAME: the first is the one that others are compared with
same() {
    ended "$2"
    diff "$work/$1.losses" "$work/$2.losses" >&2 || fail "$2: other losses than $1"
    cmp "$work/$1/sample.txt" "$work/$2/sample.txt" || fail "$2: another text than $1"
    cmp "$work/$1.safetensors" "$work/$2.safetensors" ||
        fail "$2: another checkpoint than $1: $("$czero" diff "$work/$1.ck" "$work/$2.ck")"
}

# changing NAME OPTIONS…: stopped twice, on the numbers of ranks in $worlds; with "mpi" before it
# they are processes
changing() {
    name=$1 stop=6
    shift
    for ranks in $worlds; do
        launch=
        [ "${ranks#mpi}" = "$ranks" ] || launch="$mpirun ${ranks#mpi}"
        run "$name" --ranks "${ranks#mpi}" --resume --stop-at $stop "$@"
        stop=$((stop + 6))
    done
    launch=
}

run base --parts 12 --ranks 1 --threads 1 --check-parts
ended base
[ "$(grep -Ec '"fingerprint":"[0-9a-f]{32}","chain":"[0-9a-f]{32}"' "$work/base.losses")" = 18 ] ||
    fail "base: not 18 fingerprints: $(cat "$work/base.losses")"

if [ $# -gt 0 ]; then
    counts=$1
    shift
    mpirun="$*"
    for ranks in $counts; do
        launch="$mpirun $ranks"
        run "processes-$ranks" --parts 12
        same base "processes-$ranks"
        run "share-$ranks" --parts 12 --share
        same base "share-$ranks"
    done
    worlds="mpi${counts##* } 5 mpi${counts%% *}"
    changing moved --parts 12
    same base moved
    echo "gpt_parts.sh: all as promised"
    exit 0
fi

for ranks in 2 3 5 7 12; do
    run threads-$ranks --parts 12 --ranks $ranks
    same base threads-$ranks
done
run computing --parts 12 --ranks 2 --threads 3
same base computing
run share --parts 12 --ranks 5 --share
same base share
run greedy --parts 12 --ranks 5 --partition greedy
same base greedy
run checked --parts 12 --ranks 5 --check-parts
same base checked
run whole --parts 12 --ranks 3 --unsharded
same base whole
worlds='2 7 3'
changing moved --parts 12
same base moved
grep -q '"parts": 12' "$work/moved/summary.json" || fail "summary.json: no parts"

# Fingerprints of some steps, and saved between two of them
run seldom --parts 12 --ranks 2 --proof=4
ended seldom
[ "$(grep -c '"chain"' "$work/seldom.losses")" = 4 ] || fail "--proof=4: not 4 fingerprints of 18 steps"
changing seldom-moved --parts 12 --proof=4
same seldom seldom-moved

# A value that is another one, in a checkpoint whose checksums fit
"$czero" convert --quiet "$work/moved.ck" "$work/changed.safetensors"
printf '\125' | dd of="$work/changed.safetensors" bs=1 seek=$(($(wc -c <"$work/changed.safetensors") - 6)) conv=notrunc \
    2>"$work/dd.err"
"$czero" convert --quiet --format sharded "$work/changed.safetensors" "$work/changed.ck"
"$czero" verify --quiet "$work/changed.ck" || fail "the changed checkpoint is not whole"

# Parts of 1 and 2 sequences, and parts that have none
for batch in 14 7; do
    run batch-$batch --batch $batch --parts 12 --ranks 1
    ended batch-$batch
    for ranks in 5 12; do
        run batch-$batch-$ranks --batch $batch --parts 12 --ranks $ranks --partition greedy
        same batch-$batch batch-$batch-$ranks
    done
done

# Another number of parts is another training: comparisons see it.
run five --parts 5 --ranks 1
ended five
! cmp -s "$work/base.losses" "$work/five.losses" || fail "5 parts: the losses of 12"
run five-4 --parts 5 --ranks 4
same five five-4

# A rule with norms of whole parameters, and its checkpoint
run lamb --parts 12 --rule lamb --lr 0.01 --ranks 1
ended lamb
worlds='2 5 3'
changing lamb-moved --parts 12 --rule lamb --lr 0.01
same lamb lamb-moved

# Matrices that have one owner each, beside AdamW in the same optimizer
run muon --parts 12 --rule muon --ranks 1
ended muon
changing muon-moved --parts 12 --rule muon
same muon muon-moved

# refused WORDS OPTIONS…: ends, not with 0, and with a sentence that has WORDS
refused() {
    words=$1
    shift
    # shellcheck disable=SC2086
    if "$gpt" $small --out "$work/refused" "$@" >/dev/null 2>"$work/refused.err"; then
        fail "accepted: $*"
    fi
    grep -qF -e "$words" "$work/refused.err" || fail "no '$words': $(cat "$work/refused.err")"
}
refused '--parts is 3, and there are 4 ranks' --parts 3 --ranks 4
refused '--parts goes without --hook' --parts 12 --hook all_reduce
refused '--parts' --parts 4097
refused 'the fingerprint of what was loaded is' --parts 12 --save "$work/changed.ck" --resume
refused '--proof is 3, with 1 the run was saved' --parts 12 --save "$work/base.ck" --resume --proof=3
refused '--proof' --proof=0
refused "--proof: ranks that train with 'post_local_sgd'" --hook post_local_sgd
refused '--check-parts goes with --parts' --check-parts
refused 'a batch has 6 parts, in the checkpoint 12' --parts 6 --save "$work/base.ck" --resume
refused 'a batch has no parts, in the checkpoint 12' --save "$work/base.ck" --resume
echo "gpt_parts.sh: all as promised"
