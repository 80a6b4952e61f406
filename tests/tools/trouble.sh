#!/bin/sh
# SPDX-License-Identifier: MIT
# Where the czero command cannot look it says so and ends with 2: never with 1, which is an answer,
# and never by a crash.
. "$(dirname "$0")/common.sh"
fail_call=${4:-}
[ -n "$fail_call" ] || { echo "nothing fails under a sanitizer"; exit 77; }

"$job" save 2 0 0 ck one.safetensors hf 700
"$czero" convert --quiet ck model.pt 2>err || true

# try CALLS ERROR TIMES COMMAND…: calls in turn fail, TIMES at most; the command ends as it does
# where nothing fails, with the same words or some on stderr, or with 2 and some there
try() {
    calls=$1 error=$2 times=$3
    shift 3
    at=0 stride=1 total=0
    while [ "$at" -le "$total" ]; do
        got=0
        CZ_FAIL_CALLS=$calls CZ_FAIL_ERROR=$error CZ_FAIL_AT=$at CZ_FAIL_COUNT=count LD_PRELOAD=$fail_call \
            "$czero" "$@" >out 2>err || got=$?
        if [ "$at" = 0 ]; then
            total=$(cat count)
            stride=$((total / times + 1)) well=$got
            mv out wanted
            at=$stride
            continue
        fi
        if [ $got = "$well" ] && [ $got != 2 ]; then
            cmp -s out wanted || [ -s err ] || { cat out; fail "$*: $calls $at of $total: other words"; }
        elif [ $got != 2 ] || [ ! -s err ]; then
            cat out err
            fail "$*: $calls $at of $total: it ended with $got"
        fi
        at=$((at + stride))
    done
}

looking=stat,lstat,fstat,fstatat,access,faccessat,open,openat,opendir,fdopendir,readdir,read,pread
for path in ck ck/00000001-step-3 hf one.safetensors model.pt; do
    [ -e $path ] || continue
    try $looking 13 25 verify $path  # no rights
    try $looking 24 10 verify $path  # no descriptors
    try $looking 5 25 inspect $path
    try $looking 12 10 plan $path
    try $looking 13 10 diff $path one.safetensors
    try memory 12 15 verify $path
    try memory 12 10 inspect --json $path
    try memory 12 10 diff --json $path one.safetensors
    try memory 12 10 plan $path
done
try $looking 13 25 verify --all ck
"$job" run 2 0 0 run 6 1
"$job" run 1 0 0 again 6 1
try $looking 5 12 diff run again
try memory 12 8 diff --json run again
try $looking 13 10 verify run/checkpoints --run run
try memory 12 8 verify run/checkpoints --run run
mkdir recordings
CZERO_FLIGHT_RECORDER=$work/recordings CZERO_LOG=error "$job" stall fine
try $looking 5 30 doctor recordings
try memory 12 8 doctor recordings
try memory 12 12 doctor --json --all recordings

# A file that may not get so large is a disk that is full.
mkdir small
cp one.safetensors small/
(ulimit -f 1 && code 2 "$czero" convert --force ck small/one.safetensors)
has err "File too large"
cmp one.safetensors small/one.safetensors || fail "it has changed"
[ "$(ls small)" = one.safetensors ] || fail "something is left: $(ls small)"

# A part that cannot be read is none that is missing.
got=0
CZ_FAIL_CALLS=pread CZ_FAIL_AT=5 CZ_FAIL_COUNT=count LD_PRELOAD=$fail_call "$czero" verify ck >out 2>err || got=$?
[ $got = 2 ] || { cat out err; fail "a medium that does not answer: $got"; }
has err "this says nothing about the rest of the checkpoint"
rm ck/00000001-step-3/rank-00001-of-00002.safetensors
code 1 "$czero" verify ck

# What a path is changes between two looks.
"$job" save 1 0 0 other
mkdir spare
cp -r other/00000001-step-3 spare/folder
cp one.safetensors spare/file
cp -r hf spare/model
(
    while [ ! -e stop ]; do
        for kind in folder file model; do
            mv spare/$kind moving 2>moved && mv moving spare/$kind
        done
    done
) &
racer=$!
turn=0
while [ $turn -lt 60 ]; do
    for command in inspect verify plan; do
        got=0
        "$czero" $command moving >out 2>err || got=$?
        [ $got = 0 ] || [ $got = 2 ] || [ "$command$got" = verify1 ] || { cat err; fail "$command of what moves: $got"; }
    done
    turn=$((turn + 1))
done
touch stop
wait $racer
echo "trouble: fine"
