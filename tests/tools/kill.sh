#!/bin/sh
# SPDX-License-Identifier: MIT
# czero convert, killed at 20 moments: TO is complete or not there; what is left is named; the next
# one needs no help.
. "$(dirname "$0")/common.sh"

safetensors model.safetensors '{"a":{"dtype":"F32","shape":[4,1048576],"data_offsets":[0,16777216]},'\
'"b":{"dtype":"F32","shape":[2097152],"data_offsets":[16777216,25165824]}}' 25165824
code 0 "$czero" convert model.safetensors from --ranks 3

# killed MILLISECONDS COMMAND…: it is dead when this returns (timeout -s KILL would not wait for
# that)
killed() {
    milliseconds=$1
    shift
    "$@" >out 2>err &
    killed=$!
    sleep "$(printf '%d.%03d' $((milliseconds / 1000)) $((milliseconds % 1000)))"
    kill -KILL "$killed" 2>/dev/null || true
    wait "$killed" 2>/dev/null || true
}

# whole_or_named TO FILE…: FILE are what is there now
whole_or_named() {
    to=$1
    shift
    if "$czero" verify "$to" >out 2>err; then # another generation, or all of it
        code 0 "$czero" diff --quiet "$to" from
        return
    fi
    if [ ! -e "$1" ]; then
        has err "there is no such file or folder"
    elif [ -d "$to" ] && [ -e "$to/00000001-step-0" ]; then
        has out "$to/00000001-step-0 was passed over: it was never completed"
        has out "it can be removed"
        code 2 "$czero" inspect "$to/00000001-step-0"
        has err "it can be removed"
    elif [ -d "$to" ] && [ -z "$(ls "$to")" ]; then
        has err "there is no checkpoint in this folder"
    else
        has err "start it again, which replaces this, or remove it"
        has err czero-unfinished
    fi
    code 2 "$czero" inspect "$to"
}

# try TO OPTION…: 5 kills of a conversion to TO, which is not there, or is
try() {
    to=$1
    shift
    begin=$(date +%s%N)
    code 0 "$czero" convert from "$to" "$@"
    all=$((($(date +%s%N) - begin) / 1000000))
    for part in 1 2 3 4 5; do
        rm -rf "$to" "$to".*
        killed $((all * part / 5)) "$czero" convert from "$to" "$@"
        whole_or_named "$to" "$to"*
        if ! "$czero" convert from "$to" "$@" >out 2>err; then
            has err "is there already; --force" # it was complete
        fi
        code 0 "$czero" verify "$to"
        hasnt err unfinished
        code 0 "$czero" diff --quiet "$to" from
    done
    killed $((all / 2)) "$czero" convert from "$to" "$@" --force
    whole_or_named "$to" "$to"*
    code 0 "$czero" convert from "$to" "$@" --force
    code 0 "$czero" diff --quiet "$to" from
    rm -r "$to"
}

try to --ranks 2
try to.safetensors
try to-several --max-file-size 5M --optimizer
if "$czero" convert from probe.pt 2>err; then
    try to.pt
else
    has err libzip
fi

# Killed when the files had their names and the index had not.
code 0 "$czero" convert from several --max-file-size 5M --optimizer
mv several/model.safetensors.index.json several/model.safetensors.index.json.czero-unfinished
mv several/model-00002-of-00002.safetensors several/model-00002-of-00002.safetensors.czero-unfinished
code 2 "$czero" verify several
has err "several/model.safetensors.index.json.czero-unfinished"
echo mine >several/README
code 2 "$czero" convert from several --format hf
has err "--force replaces what is in it"
hasnt err "is replaced now"
rm several/README
code 0 "$czero" convert from several --format hf
has err "which is replaced now"
code 0 "$czero" diff --quiet several from
[ "$(ls several | wc -l)" = 2 ] || fail "several has $(ls several)"

# Killed in the middle of writing the index.
rm -r several
code 0 "$czero" convert from several --max-file-size 5M --optimizer
mv several/model.safetensors.index.json several/model.safetensors.index.json.czero-unfinished.tmp
for file in 1 2; do
    mv several/model-0000$file-of-00002.safetensors several/model-0000$file-of-00002.safetensors.czero-unfinished
done
code 2 "$czero" verify several
has err "several/model.safetensors.index.json.czero-unfinished.tmp"
code 0 "$czero" convert from several --max-file-size 5M --optimizer
code 0 "$czero" verify several
hasnt err unfinished

# A file that is not complete is none, whatever is in it; many of them are a line.
cp model.safetensors half.safetensors.czero-unfinished
code 1 "$czero" verify half.safetensors.czero-unfinished
has out "it is no checkpoint"
for command in inspect diff convert; do
    code 2 "$czero" $command half.safetensors.czero-unfinished $([ $command = inspect ] || echo never.safetensors)
    has err "start it again, which replaces this, or remove it"
done
code 2 "$czero" plan half.safetensors.czero-unfinished
code 2 "$czero" convert from half.safetensors.czero-unfinished --format safetensors --force
has err "give TO another name"
mkdir many
for number in 1 2 3 4; do
    echo left >many/model-0000$number-of-00004.safetensors.czero-unfinished
done
code 2 "$czero" inspect many
has err "many/*.czero-unfinished (4 files)"

# A generation that was killed does not make a folder full; a file of somebody's does.
mkdir -p parts/00000001-step-0
echo half >parts/00000001-step-0/rank-00001-of-00002.safetensors
code 0 "$czero" convert from parts --ranks 2
has err "parts/00000001-step-0 was never completed, and stays"
code 0 "$czero" diff --quiet parts from
rm -r parts/00000002-step-0
code 2 "$czero" plan parts
has err "parts/00000001-step-0 was passed over: it was never completed"
echo mine >parts/README
code 2 "$czero" convert from parts --ranks 2
has err "--force adds a generation"
echo "kill: fine"
