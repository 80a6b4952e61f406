#!/bin/sh
# SPDX-License-Identifier: MIT
# czero inspect shows what was saved, whatever the path to it.
. "$(dirname "$0")/common.sh"

"$job" save 3 0 0 ck one.safetensors hf 700
"$job" save 3 0 1 ck # a second generation, of step 6

code 0 "$czero" inspect ck
has out "00000002-step-6: a checkpoint in parts"
has out "step        6"
has out "saved by    3 ranks"
has out "parameters  361 elements in 7 tensors"
has out "buffers     6 elements in 2 tensors"
has out "optimizer   adam"
has out "layers.{0-1}"
has out "2 alike, each:"
has out "[15, 10]"
has out "lr 0.125"
has out "weight_decay 0.0625"
has out "every parameter that has state was updated 3 times"
has out "scheduler/best"
has out "rank-00002-of-00003.safetensors"
grep -qE "^layers.0" out && fail "layers.0 is not folded"

code 0 "$czero" inspect --all ck
hasnt out "alike, each"
grep -qE '^layers ' out || fail "no branch 'layers'"

code 0 "$czero" inspect --step 3 ck
has out "00000001-step-3"
code 0 "$czero" inspect ck/00000001-step-3/
has out "step        3"
code 0 "$czero" inspect ck/00000001-step-3/index.json
has out "step        3"
code 0 sh -c 'cd ck/00000001-step-3 && "$1" inspect index.json' sh "$czero"
has out "step        3"
code 0 "$czero" inspect --params 'layers.1.*' ck
has out "layers.1"
hasnt out "embed"
hasnt out "files"
code 0 "$czero" inspect --params 'nothing' ck
has out "no tensor's name fits 'nothing'"

code 0 "$czero" inspect one.safetensors
has out "a consolidated checkpoint in one file"
has out "361 elements in 7 tensors"
code 0 "$czero" inspect hf
has out "a consolidated checkpoint in several files"
code 0 "$czero" inspect hf/model.safetensors.index.json
has out "several files"
code 0 sh -c 'cd hf && "$1" inspect model.safetensors.index.json' sh "$czero"
has out "several files"

code 0 "$czero" inspect --json ck
json 6 step
json 3 world_size
json '"sharded"' kind
json '"layers.0.w"' parameters 1 name
json '[15,10]' parameters 1 shape
json '["exp_avg","exp_avg_sq","max_exp_avg_sq"]' parameters 1 state
json '[0,1]' parameters 3 ranks
json '"adam"' optimizer rule
json 3 common epoch
json '"norm.seen"' buffers 1 name
code 0 "$czero" inspect --json one.safetensors
json '"consolidated"' kind

# Parts of a batch, where there were some, also when it was converted.
hasnt out "parts "
"$job" save 3 0/12 0 parts parts.safetensors
for path in parts parts.safetensors; do
    code 0 "$czero" inspect $path
    has out "parts       12 of each batch"
    code 0 "$czero" inspect --json $path
    json 12 parts
done
code 0 "$czero" convert parts.safetensors again --ranks 2
code 0 "$czero" inspect --json again
json 12 parts

# What is not there, or no checkpoint, or another generation's step: 2, with what to do.
code 2 "$czero" inspect nowhere
has err "nowhere: there is no such file or folder"
mkdir empty
code 2 "$czero" inspect empty
has err "there is no checkpoint in this folder"
code 2 "$czero" inspect --step 4 ck
has err "no complete generation of step 4"
code 2 "$czero" inspect --step 3 one.safetensors
has err "--step chooses among the generations in a folder"
code 2 "$czero" inspect ck/00000001-step-3/rank-00000-of-00003.safetensors
has err "one file of a checkpoint; give the folder"
code 2 "$czero" inspect
has err "of which checkpoint?"
code 2 "$czero" inspect /dev/null
code 2 "$czero" inspect ""

# Names that are commands to a terminal, or odd, from a file of anybody's.
tensor='{"dtype":"F32","shape":[1],"data_offsets"'
safetensors odd.safetensors "{\"\\u001b[31m.x\":$tensor:[0,4]},\"a..b\":$tensor:[4,8]},\"a\":$tensor:[8,12]}}" 12
code 0 "$czero" inspect odd.safetensors
has out "a model in one safetensors file"
has out "?[31m"
! grep -q "$(printf '\033')" out || fail "a name went to the terminal as it is"
code 0 "$czero" inspect --all --params '[' odd.safetensors
code 0 "$czero" verify odd.safetensors
safetensors hole.safetensors "{\"a\":$tensor:[4,8]}}" 8
code 2 "$czero" inspect hole.safetensors
code 1 "$czero" verify hole.safetensors

# So in paths, also where they come from an index: nothing obeys, no line is made up, none is cut short.
nl='
' esc=$(printf '\033')
mkdir "lo${nl}fine: of${esc}[1m" forged
cp one.safetensors "lo${nl}fine: of${esc}[1m/"
for command in inspect verify plan "convert --force --ranks 2"; do
    # shellcheck disable=SC2086
    code 0 "$czero" $command "lo${nl}fine: of${esc}[1m/one.safetensors" $([ "${command#convert}" = "$command" ] || echo made)
    has out "lo?fine: of?[1m/one.safetensors"
    ! grep -q "$esc" out || fail "$command: a path went to the terminal as it is"
done
printf '{"metadata":{},"weight_map":{"a":"x\\nfine: all.safetensors"}}' >forged/model.safetensors.index.json
code 2 "$czero" inspect forged
has err "tensor 'a' is in 'x?fine: all.safetensors', wanted the name of a file beside"

# So do many texts beside the tensors, which are all kept.
{
    printf '{"__metadata__":{"format":"pt"'
    seq -f ',"key%.0f":"v"' 80000 | tr -d '\n'
    printf '},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
} >header
bytes=$(wc -c <header)
{
    printf "$(printf '\\%03o\\%03o\\%03o\\0\\0\\0\\0\\0' $((bytes % 256)) $((bytes / 256 % 256)) $((bytes / 65536)))"
    cat header
    printf '\0\0\0\0'
} >texts.safetensors
(ulimit -t 2 && code 0 "$czero" inspect texts.safetensors)
has out "and 79,992 others; --all lists each"
(ulimit -t 5 && code 0 "$czero" convert texts.safetensors texts2.safetensors)

# A folder of many files costs time in proportion.
many=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d -p .)
trap 'rm -rf "$work" "$many"' EXIT
cp one.safetensors "$many/model.safetensors"
(cd "$many" && seq 50000 | xargs touch)
(ulimit -t 2 && code 0 "$czero" verify "$many")
rm -rf "$many"

# What asks for much more memory than it has bytes is refused, unless somebody trusts it.
mkdir brackets
{ printf '{"weight_map":['; yes '{},' | head -n 200000 | tr -d '\n'; printf '{}]}'; } \
    >brackets/model.safetensors.index.json
code 2 "$czero" inspect brackets
has err "its JSON would cost"
has err "CZERO_FILE_LIMIT=none"
code 2 "$czero" inspect --no-file-limit brackets
hasnt err "would cost"
code 2 "$czero" --no-file-limit inspect brackets
hasnt err "would cost"

# Interrupted saves are passed over, and said.
cp -r ck/00000002-step-6 ck/00000003-step-9
rm ck/00000003-step-9/rank-00001-of-00003.json
code 0 "$czero" inspect ck
has out "00000002-step-6"
has err "00000003-step-9 was passed over: it was never completed: the part of rank 1 of 3 is missing"
rm ck/00000003-step-9/index.json
code 2 "$czero" inspect ck/00000003-step-9
has err "never completed: there is no index.json"

# A damaged index.
"$job" flip ck/00000002-step-6/index.json 100
code 2 "$czero" inspect ck/00000002-step-6
has err "its checksum is not that of its"
echo "inspect: fine"
