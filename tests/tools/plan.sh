#!/bin/sh
# SPDX-License-Identifier: MIT
# czero plan: what is no model, what is not overwritten, and what a terminal never gets.
. "$(dirname "$0")/common.sh"

printf 'w f32 3 4\nb f32 4\n' >model.txt
printf 'w f32 1\n' >one.txt
code 0 "$czero" plan model.txt
has out "model.txt: 2 parameters with 16 elements"
code 0 "$czero" plan one.txt --ranks 2
has out "one.txt: 1 parameter with 1 element"
has out ", 1 bucket of gradients"

# parts of a batch: 12 on 8 ranks keep a gradient, on 12 none, one process alone three
code 0 "$czero" plan model.txt --parts 12
has out ", a batch of 12 parts"
grep -qE '^sums of parts +192 B +0 B +32 B +64 B ' out || fail "no sums of parts"
code 0 "$czero" plan model.txt --parts 12 --ranks 12 --json
json 0 worlds 0 most parts
json 192 alone parts
code 2 "$czero" plan model.txt --parts 12 --ranks 13
has err "option parts is 12, wanted at least 13, one for each rank"
code 2 "$czero" plan model.txt --parts 12 --wire f16 --all-reduce
has err "the result of a hook depends on the ranks"
code 2 "$czero" plan model.txt --parts 4097
printf 'w f16 3 4\n' >half.txt
code 2 "$czero" plan half.txt --parts 12
has err "option parts: parameters are f16, wanted f32 or f64"

# nothing waits for a pipe
mkfifo pipe
code 2 "$czero" plan pipe
has err "pipe: is a device, pipe or socket, not a file"
code 2 "$czero" plan /dev/zero
has err "not a file"

# a drawing replaces nothing unasked, and never the model
code 0 "$czero" plan model.txt --svg new.svg
has new.svg "</svg>"
[ "$(echo new.svg*)" = new.svg ] || fail "left: $(echo new.svg*)"
cp model.txt kept.txt
code 2 "$czero" plan one.txt --svg kept.txt
has err "kept.txt is there already; --force replaces it"
cmp model.txt kept.txt
code 0 "$czero" plan one.txt --svg kept.txt --force
has kept.txt "</svg>"
ln model.txt other.txt
for name in model.txt other.txt; do
    code 2 "$czero" plan model.txt --svg $name --force
    has err "this is what is read"
    has $name "w f32 3 4"
done
cp one.txt aim.txt
ln -s aim.txt link.svg
mkdir folder
for name in link.svg folder pipe; do
    code 2 "$czero" plan one.txt --svg $name --force
    has err "is no file"
done
cmp one.txt aim.txt
code 2 "$czero" plan one.txt --svg no/folder.svg
has err "no/folder.svg: cannot be written"

# control characters of names and paths
escape=$(printf '\033[31m')
control=$(printf '\302\233')
cp one.txt "p$escape$control"
code 0 "$czero" plan "p$escape$control"
has out "p?[31m?: 1 parameter"
hasnt out "$escape"
code 0 "$czero" plan "p$escape$control" --json
json "\"p\\u001B[31m$control\"" path
printf 'x%s f99\n' "$escape" >"p$escape"
code 2 "$czero" plan "p$escape"
has err "p?[31m, line 1: 'x?[31m'"
hasnt err "$escape"
printf 'w\377 f99\n' >latin.txt
code 2 "$czero" plan latin.txt
has err "'w?'"

# the model of a file of torch, where there is libzip
"$job" save 2 0 0 ck one.safetensors hf 700
code 0 "$czero" plan one.safetensors --json
sed 1,2d out >wanted
if "$czero" convert one.safetensors one.pt 2>err; then
    code 0 "$czero" plan one.pt --json
    sed 1,2d out >got
    cmp wanted got || fail "one.pt is planned otherwise"
else
    has err "libzip"
fi
echo "plan: fine"
