#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs of the example GPT in parts, on other numbers of ranks: are they the same, bit for bit? BUILD
# is a build folder.
#
# scripts/demo-parts.sh BUILD ranks FOLDER STEPS MPIRUN…
#     The first STEPS steps of the demo on 1, 2, 3 and 5 ranks that are threads, and on 2 MPI processes: a table.
# scripts/demo-parts.sh BUILD again FOLDER ARGUMENTS…
#     After make demo, which trained with these arguments, stopped with what is in FOLDER/stopped, and ended with
#     FOLDER/checkpoints: its first steps and its last ones once more. Nothing is said without --parts.
#
# Exit status: 0 all is the same, 1 something is not, or a run failed.
set -eu
build=$1 mode=$2 folder=$3
shift 3
gpt=$build/examples/12_gpt

fail() {
    echo "demo-parts: $*" >&2
    exit 1
}

# losses FOLDER: the loss log of a run, all but its speed, which is the machine's and the moment's
losses() {
    sed -E 's/,"tokens_per_second":[^},]*//' "$1/metrics.jsonl"
}

# export_end CHECKPOINTS FOLDER: all of the newest checkpoint as one file, which is the same however
# ranks have shared it
export_end() {
    "$build/tools/czero" convert --quiet --force "$1" "$2/end.safetensors" 2>"$2/convert.log" ||
        fail "no export of $1: $(cat "$2/convert.log")"
}

# last WHAT FOLDER: its value in the last line of a run's log
last() {
    sed -nE "s/.*\"$1\":\"?([^,}\"]*).*/\1/p" "$2/losses" | tail -n 1
}

# differs LOG LOG: the first step in which they do, and what they say there
differs() {
    diff "$1" "$2" | sed -nE 's/^[<>] [{]"step":([0-9]+),(.*)[}]$/\1 \2/p' |
        awk 'NR == 1 { first = $1 } $1 == first && shown < 2 { shown++; text = text (shown > 1 ? " there," : " ") $2 }
             END { print "first in step " first ":" text " here" }'
}

# ---- a table of numbers of ranks ----

# row NAME RANKS COMMAND…: one run
row() {
    name=$1 shown=$2
    shift 2
    begin=$(date +%s%N)
    "$@" --parts 12 --proof --stop-at "$steps" --save "$folder/$name/checkpoints" --out "$folder/$name" --quiet ||
        fail "the run on $shown failed"
    end=$(date +%s%N)
    losses "$folder/$name" >"$folder/$name/losses"
    export_end "$folder/$name/checkpoints" "$folder/$name"
    printf '%-16s  %-20s  %s  %6.1f s\n' "$shown" "$(last loss "$folder/$name")" \
        "$(last fingerprint "$folder/$name")" \
        "$(awk "BEGIN { print ($end - $begin) / 1e9 }")"
    runs=$((runs + 1))
    if ! cmp -s "$folder/1/losses" "$folder/$name/losses"; then
        bad="$bad
$shown: other losses than on 1 thread rank, $(differs "$folder/1/losses" "$folder/$name/losses")"
    elif ! cmp -s "$folder/1/end.safetensors" "$folder/$name/end.safetensors"; then
        bad="$bad
$shown: the same losses as on 1 thread rank, but another checkpoint: czero diff $folder/1/checkpoints $folder/$name/checkpoints"
    fi
}

compare_ranks() {
    steps=$1
    shift
    runs=0 bad=
    rm -rf "$folder"
    mkdir -p "$folder"
    echo "The first $steps steps of the demo, each batch in 12 parts that are dealt out to the ranks:"
    printf '%-16s  %-20s  %-32s  %8s\n' ranks "loss of step $steps" "fingerprint of the end" time
    for ranks in 1 2 3 5; do
        name="$ranks threads"
        [ $ranks -gt 1 ] || name='1 thread'
        row $ranks "$name" "$gpt" --ranks $ranks
    done
    row mpi '2 MPI processes' "$@" -n 2 "$gpt"
    if [ -n "$bad" ]; then
        echo "NOT the same bits:$bad"
        return 1
    fi
    echo "All $runs are the same bits: every loss and fingerprint in $folder/*/losses, and the checkpoints."
}

# ---- the demo once more ----

# agrees WHAT FOLDER: is its log that of the demo, as far as it goes?
agrees() {
    losses "$2" >"$2/losses"
    losses "$demo" | head -n "$(wc -l <"$2/losses")" >"$2/demo-losses"
    if cmp -s "$2/losses" "$2/demo-losses"; then
        echo "  $1: the same losses, bit for bit ($2/metrics.jsonl)"
    else
        echo "  $1: OTHER losses, $(differs "$2/demo-losses" "$2/losses")"
        bad=yes
    fi
}

repeat_demo() {
    first=$folder/first last=$folder/last bad=
    demo=$folder parts=0 before=none
    for word; do
        case $before=$word in
        --out=*) demo=$word ;;
        --parts=*) parts=$word ;;
        esac
        case $word in
        --out=*) demo=${word#*=} ;;
        --parts=*) parts=${word#*=} ;;
        esac
        before=$word
    done
    [ "$parts" != 0 ] || return 0
    ranks=5
    [ "$parts" -ge $ranks ] || ranks=$parts
    rm -rf "$first" "$last"
    mkdir -p "$last"
    cp -R "$folder/stopped" "$last/checkpoints"
    echo
    echo "the same on other numbers of ranks?"
    "$gpt" "$@" --ranks "$ranks" --out "$first" --save "$first/checkpoints" --stop-at 5% --quiet
    agrees "the first steps on $ranks ranks" "$first"
    "$gpt" "$@" --ranks 1 --out "$last" --save "$last/checkpoints" --resume --quiet
    agrees "from the stop to the end on 1 rank" "$last"
    export_end "$last/checkpoints" "$last"
    export_end "$folder/checkpoints" "$folder"
    if cmp -s "$last/end.safetensors" "$folder/end.safetensors"; then
        echo "  and the same last checkpoint, byte for byte as one file"
    else
        echo "  and ANOTHER last checkpoint: czero diff $folder/checkpoints $last/checkpoints"
        bad=yes
    fi
    [ -z "$bad" ]
}

case $mode in
ranks) compare_ranks "$@" ;;
again) repeat_demo "$@" ;;
*) fail "'$mode' is neither ranks nor again" ;;
esac
