#!/bin/sh
# SPDX-License-Identifier: MIT
# czero convert: in every direction the bits that saves and exports give.
. "$(dirname "$0")/common.sh"

generation=00000001-step-3

# same A B: parts of two generations but for what a save makes anew: the id, and checksums that
# follow from it
same() {
    for file in "$1"/$generation/*; do
        name=${file##*/}
        mask "$file" >a.masked
        mask "$2/$generation/$name" >b.masked
        cmp a.masked b.masked || fail "$name of $1 and $2 differ"
    done
    [ "$(ls "$1/$generation")" = "$(ls "$2/$generation")" ] || fail "$1 and $2 have other files"
}
mask() {
    sed -E 's/"id":"[0-9a-f]{32}"/ID/g; s/"header":"[0-9a-f]{32}"/HEADER/g; s/"checksum":"[0-9a-f]{32}"/SUM/' "$1"
}

for ranks in 1 2 3; do
    "$job" save $ranks 0 0 ck$ranks one.safetensors hf 700
    "$job" save $ranks 1 0 greedy$ranks
done

for ranks in 1 2 3; do
    # to one file, and to a folder of several: what an export gives
    for from in ck$ranks greedy$ranks; do
        code 0 "$czero" convert $from made.safetensors
        cmp made.safetensors one.safetensors || fail "$from as one file"
        [ $ranks = 0 ] || has err "alone (random numbers, say) is not in it"
        rm made.safetensors
        code 0 "$czero" convert $from made --max-file-size 700 --optimizer
        diff -r made hf || fail "$from as a folder"
        rm -r made
        code 0 "$czero" convert one.safetensors made --max-file-size 700 --optimizer
        diff -r made hf || fail "one file as a folder"
        code 0 "$czero" convert made back.safetensors
        cmp back.safetensors one.safetensors || fail "a folder as one file"
        rm -r made back.safetensors
    done
    # to a file for torch and back, where the library has libzip
    if "$czero" convert ck$ranks made.pt 2>err; then
        code 0 "$czero" verify made.pt
        has out "checksums of"
        code 0 "$czero" diff made.pt ck$ranks
        code 0 "$czero" convert made.pt back.safetensors
        cmp back.safetensors one.safetensors || fail "ck$ranks for torch, and back"
        [ $ranks = 1 ] || cmp made.pt first.pt || fail "ck$ranks for torch: not as from 1 rank"
        mv made.pt first.pt
        rm back.safetensors
    else
        has err libzip
    fi
    # to another number of ranks: what a save of theirs gives
    for to in 1 2 3; do
        code 0 "$czero" convert ck$ranks made --ranks $to
        code 0 "$czero" verify made
        [ $to -lt $ranks ] || hasnt err "alone"
        [ $to -ge $ranks ] && [ $to != $ranks ] || same made ck$to
        "$job" load 2 made again.safetensors
        cmp again.safetensors one.safetensors || fail "$ranks ranks as $to, loaded"
        rm -r made again.safetensors
    done
    for from in one.safetensors hf greedy3; do
        code 0 "$czero" convert $from made --format sharded --ranks $ranks
        code 0 "$czero" verify made
        "$job" load 3 made again.safetensors
        cmp again.safetensors one.safetensors || fail "$from for $ranks ranks, loaded"
        code 0 "$czero" diff made one.safetensors
        rm -r made again.safetensors
    done
done
code 2 "$czero" convert ck2 made --ranks 5000
has err "--ranks 5000: the parameters have 361 elements, so most of the parts would have none; wanted at most 4096"
[ ! -e made ] || fail "parts without elements"
for ranks in 5 7; do # more ranks than some tensors have blocks
    code 0 "$czero" convert ck2 made --ranks $ranks
    code 0 "$czero" verify made
    code 0 "$czero" convert made again.safetensors
    cmp again.safetensors one.safetensors || fail "2 ranks as $ranks, as one file"
    rm -r made again.safetensors
done

# Cut at granules, or at rows (-1): so they stay, on another number of ranks as it would cut them.
for granule in 16 7 -1; do
    for ranks in 1 2 3; do
        "$job" save $ranks 0:$granule 0 granules$ranks
    done
    for ranks in 1 2 3; do
        for to in 1 2 3; do
            code 0 "$czero" convert granules$ranks made --ranks $to
            code 0 "$czero" verify made
            [ $to -gt $ranks ] || same made granules$to
            code 0 "$czero" convert made again.safetensors
            cmp again.safetensors one.safetensors || fail "granules of $granule, $ranks ranks as $to"
            rm -r made again.safetensors
        done
        code 0 "$czero" inspect granules$ranks
        "$job" load 2 granules$ranks again.safetensors
        cmp again.safetensors one.safetensors || fail "granules of $granule, loaded"
        rm again.safetensors
    done
    rm -r granules1 granules2 granules3
done

# Parameters only: another program's model for us, and back.
code 0 "$czero" convert ck3 model.safetensors --parameters-only
hasnt err alone
code 0 "$czero" inspect model.safetensors
has out "a model in one safetensors file"
code 0 "$czero" convert model.safetensors model --format hf
code 0 "$czero" convert model again.safetensors
code 0 "$czero" diff --quiet model again.safetensors
code 0 "$czero" convert model.safetensors ck-model --ranks 2
code 0 "$czero" verify ck-model
code 0 "$czero" diff --parameters-only ck-model ck1

# A folder of hf has values only, unless the optimizer is asked for.
code 0 "$czero" convert ck3 published --format hf
has err "note: values only; the optimizer's state goes with --optimizer"
cmp published/model-00001-of-00001.safetensors model/model-00001-of-00001.safetensors
code 0 "$czero" convert ck3 whole --format hf --optimizer
hasnt err "values only"
code 0 "$czero" diff whole one.safetensors
code 2 "$czero" convert ck3 never --format hf --optimizer --parameters-only
code 2 "$czero" convert ck3 never.safetensors --optimizer
has err "--optimizer goes with --format hf"
rm -r published whole

# Averages: what is evaluated, from any number of ranks and form.
for ranks in 1 3; do
    "$job" average $ranks 0 0 averaged$ranks evaluated.safetensors
    code 0 "$czero" convert averaged$ranks made.safetensors --average
    cmp made.safetensors evaluated.safetensors || fail "averages of $ranks ranks"
    ! cmp -s made.safetensors model.safetensors || fail "averages are the values"
    rm made.safetensors
done
for form in whole.safetensors whole.pt whole.dcp; do
    code 0 "$czero" convert averaged3 "$form"
    code 0 "$czero" convert "$form" made.safetensors --average
    code 0 "$czero" diff made.safetensors evaluated.safetensors
    rm -r made.safetensors "$form"
done
code 0 "$czero" convert averaged3 module.pt --average --rename '*=module.*'
code 0 "$czero" inspect module.pt
has out "module  "
code 0 "$czero" inspect averaged3
has out "average"
code 2 "$czero" convert ck1 never.safetensors --average
has err "--average, but it has no averages of values"
code 2 "$czero" convert averaged3 never --ranks 2 --average
has err "--average goes with --format safetensors, hf, torch or dcp"
code 2 "$czero" convert averaged3 never --format hf --optimizer --average
rm -r averaged1 averaged3 module.pt

# What is there stays, unless --force.
code 2 "$czero" convert ck1 one.safetensors
has err "is there already; --force replaces it"
code 2 "$czero" convert ck1 ck2 --ranks 2
has err "--force adds a generation"
code 0 "$czero" convert ck1 ck2 --ranks 2 --force
code 0 "$czero" inspect ck2
has out "00000002-step-3"
mkdir prepared
code 0 "$czero" convert ck1 prepared --ranks 2
cp one.safetensors kept.safetensors
code 0 "$czero" convert ck3 kept.safetensors --force --parameters-only
cmp kept.safetensors model.safetensors

# What is read is never what is written, and of a folder that is replaced no file stays behind.
code 2 "$czero" convert kept.safetensors kept.safetensors --force
has err "this is what is read"
cmp kept.safetensors model.safetensors
code 0 "$czero" convert ck1 replaced --max-file-size 100 --optimizer
code 0 "$czero" convert ck1 replaced --format hf --force
[ "$(cd replaced && echo *)" = "model-00001-of-00001.safetensors model.safetensors.index.json" ] ||
    fail "replaced has $(cd replaced && echo *)"
mkfifo pipe
code 2 "$czero" convert ck1 pipe --format safetensors --force
has err "neither a file nor a folder"

# An option that says another rule than what is read, which says one.
code 0 "$czero" convert ck1 ruled.safetensors --rule adam
cmp ruled.safetensors one.safetensors || fail "--rule of the rule that it has"
code 2 "$czero" convert ck1 never.safetensors --rule adamw
has err "--rule adamw, but its optimizer is adam"
code 2 "$czero" convert model.safetensors never.safetensors --rule adam
has err "no state of an optimizer"
code 2 "$czero" convert ck1 never.safetensors --rule adams
has err "wanted one of: sgd, "

# Damage is found before anything is made.
cp -r ck3 bad
"$job" flip bad/$generation/rank-00001-of-00003.safetensors -1
code 2 "$czero" convert bad never.safetensors
has err "is damaged"
if [ -e first.pt ]; then
    cp first.pt bad.pt
    "$job" flip bad.pt 5000
    code 1 "$czero" verify bad.pt
    code 2 "$czero" convert bad.pt never.safetensors
    code 2 "$czero" diff bad.pt first.pt
fi
[ ! -e never.safetensors ] && [ ! -e never.safetensors.czero-unfinished ] || fail "a damaged checkpoint was converted"

# Folders that are not there, files where folders should be, wrong command lines.
code 2 "$czero" convert ck1 nowhere/x.safetensors
has err "nowhere/x.safetensors.czero-unfinished cannot be made: there is no folder nowhere"
code 2 "$czero" convert ck1 nowhere/x --ranks 2
code 2 "$czero" convert ck1 one.safetensors --ranks 2 --force
code 2 "$czero" convert ck1 somewhere
has err "into which form?"
[ ! -e somewhere ]
code 2 "$czero" convert ck1
has err "two paths are wanted"
code 2 "$czero" convert ck1 x --ranks 0
code 2 "$czero" convert ck1 x.safetensors --max-file-size 5X
has err "wanted bytes"
code 2 "$czero" convert ck1 x --format zip
code 2 "$czero" convert nothing x.safetensors

# What a conversion that was killed leaves is named, and replaced by the next one; no other file is.
for made in killed.safetensors killed; do
    [ $made != killed ] || mkdir killed
    left=$made.czero-unfinished
    [ $made != killed ] || left=killed/model-00002-of-00002.safetensors.czero-unfinished
    echo left >$left
    echo mine >killed.safetensors.tmp
    code 2 "$czero" verify $made
    has err "start it again, which replaces this, or remove it"
    has err "$left"
    code 2 "$czero" inspect $made
    has err "$left"
    code 0 "$czero" convert ck1 $made $([ $made != killed ] || echo --format hf)
    has err "was not completed and left this, which is replaced now"
    has err "$left"
    [ ! -e $left ] || fail "$left is still there"
    code 0 "$czero" verify $made
    hasnt err unfinished
    [ "$(cat killed.safetensors.tmp)" = mine ] || fail "the user's file is gone"
done
echo left >killed.safetensors.czero-unfinished
code 0 "$czero" inspect killed.safetensors
has err killed.safetensors.czero-unfinished
cp -r ck1 ck-killed
mkdir ck-killed/00000002-step-4
code 0 "$czero" verify ck-killed
has err "00000002-step-4 was passed over"
has err "it can be removed"
code 0 "$czero" convert ck1 ck-killed --ranks 2 --force
has err "00000002-step-4"

# What is made is made, whoever reads the summary or not.
if [ -w /dev/full ]; then
    for option in "" --json; do
        got=0
        "$czero" convert ck1 unsaid.safetensors --force $option >/dev/full 2>err || got=$?
        [ $got = 0 ] || fail "a summary that cannot be written: $got"
        has err "unsaid.safetensors is made, but the summary cannot be written"
        cmp unsaid.safetensors one.safetensors
    done
fi

# apart COMMAND…: it is refused, with the sentence, and nothing in ./in has changed
apart() {
    code 2 "$czero" "$@"
    grep -qE "this is what is read|it belongs to the|would not be taken for|standard output goes to" err ||
        { cat err; fail "$*: not for that reason"; }
    diff -r in as-it-was || fail "$*: its input has changed"
}

# What would be written is none of what is read, under whatever name, and breaks no model or
# checkpoint beside it.
mkdir in
"$job" save 2 0 0 in/ck in/one.safetensors in/hf 700
code 0 "$czero" convert in/one.safetensors in/plain --parameters-only --max-file-size 300
first=$(ls in/plain/model-00001-of-*)
second=$(ls in/plain/model-00002-of-*)
ln in/one.safetensors in/hard.safetensors
ln -s one.safetensors in/link.safetensors
ln -s plain in/linked
cp in/one.safetensors in/ck/$generation/mine.safetensors
cp -a in as-it-was
apart convert in/plain "$first" --force
apart convert in/plain "$second" --force --parameters-only
apart convert "$first" "$second" --force
apart convert "$first" in/plain --format hf --force
apart convert in/linked in/plain --format hf --force
apart convert in/plain in/linked/./model.safetensors.index.json --format safetensors --force
apart convert in/one.safetensors in/hard.safetensors --force
apart convert in/hard.safetensors in/one.safetensors --force
apart convert in/link.safetensors in/one.safetensors --force
apart convert in/ck in/ck/$generation/rank-00000-of-00002.safetensors --force
apart convert in/ck in/ck/$generation/mine.safetensors --force
apart convert in/ck in/ck/$generation/index.json --format safetensors --force
apart convert in/ck in/ck/model.safetensors
apart convert in/ck in/ck/$generation/model.safetensors
apart convert in/ck in/ck --format hf --force
apart convert in/ck in/ck/$generation --format hf --force
apart convert in/ck/$generation in/ck/$generation --ranks 3 --force
apart convert in/one.safetensors in/ck --format hf --force
apart plan in/plain --svg "$first" --force
apart plan in/plain --svg in/plain/model.safetensors.index.json --force
apart plan in/one.safetensors --svg in/hard.safetensors --force
apart plan in/ck --svg in/ck/$generation/rank-00001-of-00002.safetensors --force
apart plan in/ck --svg in/ck/$generation/index.json --force
for command in inspect verify plan; do
    code 2 sh -c '"$1" "$2" in/one.safetensors >>in/hard.safetensors' sh "$czero" $command
    has err "standard output goes to"
    code 2 sh -c '"$1" "$2" in/ck >>"in/ck/$3/index.json" 2>&1' sh "$czero" $command $generation || true
    diff -r in as-it-was || fail "$command: its input has changed"
done
# a link to what the conversion would take for its own leftover
cp in/one.safetensors leftover.safetensors.czero-unfinished
ln -s ../leftover.safetensors.czero-unfinished in/leftover
code 2 "$czero" convert in/leftover leftover.safetensors
has err "this is what is read"
cmp leftover.safetensors.czero-unfinished one.safetensors
rm in/leftover
# and beside them there is room
code 0 "$czero" convert in/hf in/hf/again.safetensors
code 0 "$czero" convert in/ck in/ck --ranks 3 --force
code 0 "$czero" inspect in/ck/$generation
code 0 "$czero" plan in/hf --svg in/hf/plan.svg
code 0 sh -c '"$1" inspect in/hf >in/hf/inspect.txt' sh "$czero"
rm -r in as-it-was

# Exports in turn over one another have the same names, and leave nothing.
code 0 "$czero" convert ck1 turns --max-file-size 700 --optimizer
ls turns >first.names
for turn in 1 2 3; do
    echo mine >turns/model-00001-of-00099.safetensors
    code 0 "$czero" convert ck2 turns --max-file-size 700 --optimizer --force
    code 0 "$czero" verify turns
    [ "$(cat turns/model-00001-of-00099.safetensors)" = mine ] || fail "a file that no index names is gone"
    rm turns/model-00001-of-00099.safetensors
    ls turns | cmp - first.names || fail "turn $turn: $(ls turns)"
done

code 0 "$czero" convert --json ck1 json.safetensors
json '"json.safetensors"' to
json 1 own_dictionaries_left_out

# Types that the library does not compute with are carried as bytes.
t() { printf '"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}' "$@"; }
safetensors types.safetensors "{$(t a BOOL '[3]' '[0,3]'),$(t b F8_E4M3 '[5]' '[3,8]'),$(t c F4 '[2,3]' '[8,11]')}" 11
printf 'hello world' | dd of=types.safetensors bs=1 seek=$(($(wc -c <types.safetensors) - 11)) conv=notrunc 2>err
code 0 "$czero" inspect types.safetensors
has out f8_e4m3
code 0 "$czero" verify types.safetensors
code 0 "$czero" convert types.safetensors ck-types --ranks 3
code 0 "$czero" verify ck-types
code 0 "$czero" convert ck-types types-again.safetensors
has types-again.safetensors 'hello world'
code 0 "$czero" diff types.safetensors types-again.safetensors
printf J | dd of=types-again.safetensors bs=1 seek=$(($(wc -c <types-again.safetensors) - 11)) conv=notrunc 2>err
code 1 "$czero" diff types.safetensors types-again.safetensors
code 2 "$czero" convert types.safetensors types.pt
has err "'b': a file for torch has no tensors of type f8_e4m3"

# What other programs wrote beside the tensors is kept, shown and compared.
safetensors beside.safetensors "{\"__metadata__\":{\"format\":\"pt\",\"head\":\"a\",\"lora\":\"r=8\"},$(t a F32 '[1]' '[0,4]')}" 4
code 0 "$czero" inspect beside.safetensors
has out "tied name    head: is a"
has out "lora: r=8"
code 0 "$czero" inspect --json beside.safetensors
json '"r=8"' metadata lora
code 0 "$czero" convert beside.safetensors ck-beside --ranks 2
code 0 "$czero" verify ck-beside
code 0 "$czero" convert ck-beside beside-again.safetensors
has beside-again.safetensors '"lora":"r=8"'
code 0 "$czero" diff beside.safetensors beside-again.safetensors
code 0 "$czero" convert --format hf beside.safetensors beside-hf
code 0 "$czero" diff ck-beside beside-hf
safetensors beside-other.safetensors "{\"__metadata__\":{\"head\":\"a\",\"lora\":\"r=4\"},$(t a F32 '[1]' '[0,4]')}" 4
code 1 "$czero" diff beside.safetensors beside-other.safetensors
has out "'lora': 'r=8' in A, 'r=4' in B"
code 0 "$czero" convert beside.safetensors beside.pt
has err "2 texts beside the tensors"

echo "convert: fine"
