#!/bin/sh
# SPDX-License-Identifier: MIT
# czero verify: whole checkpoints are fine; whatever byte of whatever file is damaged, it says which
# file.
. "$(dirname "$0")/common.sh"

for ranks in 1 2 3; do
    for partition in 0 1; do
        "$job" save $ranks $partition 0 "ck$ranks$partition" one.safetensors hf 700
        code 0 "$czero" verify "ck$ranks$partition"
        has out "every element is there exactly once"
    done
done
code 0 "$czero" verify one.safetensors
has out "fine as far as can be seen"
code 0 "$czero" verify hf
code 0 "$czero" verify --quiet ck30
[ ! -s out ] || fail "--quiet prints"
code 0 "$czero" verify --json ck30
json true fine
json true checkpoints 0 fine
json '[]' checkpoints 0 problems

# damaged NAME: after something was done to ./bad, a copy of a good one, that is found, and the file
# is named
damaged() {
    code 1 "$czero" verify bad
    has out "$1"
    has out "not well"
    code 1 "$czero" verify --json bad
    json false fine
    rm -rf bad
}
copy() { cp -r "$1" bad; }

generation=00000001-step-3
for file in index.json rank-00001-of-00003.json rank-00001-of-00003.safetensors common.safetensors; do
    for offset in 0 9 40 -1 -20 -200; do
        copy ck30
        "$job" flip "bad/$generation/$file" $offset
        damaged "$file"
    done
    copy ck30
    truncate -s -8 "bad/$generation/$file"
    damaged "$file"
done

# Both files of a part are damaged: both are named.
copy ck30
"$job" flip bad/$generation/rank-00000-of-00003.safetensors -1
"$job" flip bad/$generation/rank-00002-of-00003.safetensors -1
code 1 "$czero" verify bad
has out rank-00000-of-00003.safetensors
damaged rank-00002-of-00003.safetensors

# Two tensors of one part are damaged: both are named.
copy ck10
part=bad/$generation/rank-00000-of-00001.safetensors
"$job" flip $part -1
"$job" flip $part -200
code 1 "$czero" verify bad
[ "$(grep -c "$part: tensor" out)" = 2 ] || { cat out; fail "not two tensors"; }
rm -r bad

# Files of another save, in pieces that are fine.
copy ck30
cp ck20/$generation/rank-00000-of-00002.safetensors bad/$generation/rank-00001-of-00003.safetensors
damaged rank-00001-of-00003.safetensors
copy ck30
"$job" save 3 0 0 other
cp other/$generation/rank-00001-of-00003.* bad/$generation/
damaged "another save"

copy ck30
rm bad/$generation/rank-00001-of-00003.safetensors
damaged rank-00001-of-00003.safetensors
copy ck30
mv bad/$generation bad/00000001-step-4
damaged "the folder is called 00000001-step-4"

# A generation that was never completed, alone: no answer but no.
copy ck30
rm bad/$generation/rank-00001-of-00003.json
code 1 "$czero" verify bad
has out "never completed"
rm -r bad

# --all looks at every one.
copy ck30
cp -r bad/$generation bad/00000002-step-3
code 1 "$czero" verify --all bad
has out "00000002-step-3: not well"
has out "$generation: fine"
rm -r bad

# Consolidated files.
cp one.safetensors cut.safetensors
truncate -s -4 cut.safetensors
code 1 "$czero" verify cut.safetensors
cp -r hf bad
rm bad/model-00002-of-*
code 1 "$czero" verify bad
has out model-00002-of
code 2 "$czero" verify nowhere
code 2 "$czero" verify --all --step 3 ck30
has err "--all or --step, not both"
echo "verify: fine"
