#!/bin/sh
# SPDX-License-Identifier: MIT
# czero convert, with each call to the system and many an allocation failing in turn: where it ends
# with 2 the target is as it was, where it ends with 0 it is the new one; it never ends otherwise.
. "$(dirname "$0")/common.sh"
fail_call=${4:-}
[ -n "$fail_call" ] || { echo "nothing fails under a sanitizer"; exit 77; }

"$job" save 2 0 0 from one.safetensors
"$job" save 2 0 1 ck old.safetensors
"$czero" convert --quiet ck old.pt 2>err || true
"$czero" convert --quiet ck old-hf --max-file-size 700 --optimizer
"$czero" convert --quiet from new-hf --max-file-size 700 --optimizer
"$czero" convert --quiet from new-one.safetensors
"$czero" convert --quiet from new.pt 2>err || true

# failing CALLS AT COMMAND…: its code in $got, output in ./out, errors in ./err
failing() {
    calls=$1 at=$2
    shift 2
    got=0
    CZ_FAIL_CALLS=$calls CZ_FAIL_AT=$at CZ_FAIL_COUNT=count LD_PRELOAD=$fail_call "$@" >out 2>err || got=$?
}

# same WANTED FOUND: a file, or a folder of a model, which may have its files under other names
same() {
    if [ ! -d "$1" ]; then cmp -s "$1" "$2"
    else "$czero" verify --quiet "$2" >said 2>&1 && "$czero" diff --quiet "$1" "$2" >said 2>&1; fi
}

# try NAME OLD NEW CALLS TIMES OPTION…: `from` to NAME, which is OLD (or nothing), and is NEW then;
# TIMES: at most
try() {
    name=$1 old=$2 new=$3 calls=$4 times=$5
    shift 5
    failed=0 at=0 stride=1 total=0
    while [ "$at" -le "$total" ]; do
        rm -rf there
        mkdir there
        [ "$old" = nothing ] || cp -r "$old" "there/$name"
        failing "$calls" "$at" "$czero" convert --quiet --force from "there/$name" "$@"
        if [ "$at" = 0 ]; then
            total=$(cat count)
            stride=$((total / times + 1))
        fi
        which="$calls, $at of $total"
        case $got in
        0)
            same "$new" "there/$name" || { cat err; fail "$which: 0, and $name is not the new one"; }
            [ -s err ] || [ "$(ls -A there)" = "$name" ] || fail "$which: $(ls -A there), and not a word" ;;
        2)
            failed=$((failed + 1))
            [ -s err ] || fail "$which: not a word"
            if [ "$old" = nothing ]; then
                [ ! -e "there/$name" ] || { cat err; ls -R there; fail "$which: 2, and $name is there"; }
            else
                diff -r "$old" "there/$name" >said || { cat err said; fail "$which: 2, and $name has changed"; }
            fi
            [ "$(ls -A there | grep -cv "^$name\$")" = 0 ] || { cat err; ls there; fail "$which: something is left"; } ;;
        *) cat out err; fail "$which: it ended with $got" ;;
        esac
        at=$((at + stride))
    done
    # Most memory is JSON's, which has a reserve, so of a few allocations perhaps none matters.
    [ $failed -gt 0 ] || [ "$calls" = memory ] || fail "$calls: nothing failed in $total calls"
    echo "$name over $old: $failed failed; $total calls of $calls"
}

publishing=rename,renameat,renameat2,unlink,unlinkat,link,fsync,mkdir,mkdirat,rmdir,fallocate,lstat,opendir,close
publishing=$publishing,openat,pwrite
try model old-hf new-hf $publishing 60 --max-file-size 700 --optimizer
try model nothing new-hf $publishing 20 --max-file-size 700 --optimizer
try model.safetensors old.safetensors new-one.safetensors $publishing 20
try model.safetensors nothing new-one.safetensors $publishing 20
if [ -e new.pt ]; then
    try model.pt old.pt new.pt $publishing 12
    try model.pt nothing new.pt $publishing 6
fi
try model old-hf new-hf files 25 --max-file-size 700 --optimizer
try model.safetensors old.safetensors new-one.safetensors files 12
try model old-hf new-hf memory 25 --max-file-size 700 --optimizer
try model.safetensors old.safetensors new-one.safetensors memory 12
echo '{"em.*": [-1], "layers.*.w": {"layers.*.row.*": [15, 10]}}' >rules.json
set -- --rename 'embed.*=em.*' --strip-prefix head. --split rules.json
"$czero" convert --quiet from renamed.safetensors "$@"
try model.safetensors old.safetensors renamed.safetensors memory 40 "$@"

# What an export that was killed has left is taken away, or it is said that it cannot be looked for.
left=there/model/model-00007-of-00009.safetensors.czero-unfinished
at=0 total=0 kept=0
while [ "$at" -le "$total" ]; do
    rm -rf there
    mkdir there
    cp -r old-hf there/model
    echo >$left
    failing opendir,fdopendir,readdir "$at" "$czero" convert --quiet --force from there/model --max-file-size 700
    [ "$at" != 0 ] || total=$(cat count)
    if [ $got = 0 ] && [ -e $left ]; then
        kept=$((kept + 1))
        has err "cannot be listed"
    fi
    at=$((at + 1))
done
[ $kept -gt 0 ] || fail "nothing was left in $total calls"
echo "convert_failures: fine"
