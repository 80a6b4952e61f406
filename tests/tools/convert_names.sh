#!/bin/sh
# SPDX-License-Identifier: MIT
# czero convert with other names and shapes: elements stay where they were, state and parameter
# groups go with their tensors, what comes back is what there was; rules that fit nothing, or make
# two of one name, make nothing.
. "$(dirname "$0")/common.sh"

for ranks in 1 2 3; do "$job" save $ranks 0 0 ck$ranks one.safetensors; done

# ---- there and back ----

back() { # FROM TO…: options of one way, and of the other
    code 0 "$czero" convert ck2 there "$@"
    code 0 "$czero" verify there
}
back --ranks 3 --rename 'layers.*.w=h.*.weight' --rename 'head.*=*'
code 0 "$czero" inspect --all there
has out "1  3 parameters: h.0.weight, h.1.weight, empty"
code 0 "$czero" convert there again.safetensors --rename 'h.*.weight=layers.*.w' --rename 'scale=head.scale'
code 0 "$czero" diff again.safetensors ck1
cmp again.safetensors one.safetensors || fail "renamed, and back"
rm -r there again.safetensors

# the order of the command line, each on what those before have made
code 0 "$czero" convert ck1 there.safetensors --rename 'embed.*=*.embed' --rename '*.embed=wte.*'
"$job" tensor there.safetensors wte.weight >a
"$job" tensor one.safetensors embed.weight >b
cmp a b || fail "renamed twice"
rm there.safetensors

# a prefix, as a data-parallel model of PyTorch gives it
code 0 "$czero" convert ck1 there.safetensors --rename '*=module.*'
code 0 "$czero" convert there.safetensors again.safetensors --strip-prefix module.
cmp again.safetensors one.safetensors || fail "a prefix, and without"
if "$czero" convert --quiet there.safetensors there.pt 2>err; then
    code 0 "$czero" convert there.pt back --ranks 2 --strip-prefix module.
    code 0 "$czero" diff back ck2
    code 0 "$czero" convert ck2 module.pt --rename '*=module.*'
    code 0 "$czero" diff module.pt there.pt
    rm -r back
else
    has err libzip
fi
rm there.safetensors again.safetensors

# parts of names that are no stars
code 0 "$czero" convert ck1 there.safetensors --rename 'embed.weight=a\*b\=c\\'
code 0 "$czero" convert there.safetensors again.safetensors --rename 'a\*b\=c\\=embed.weight'
cmp again.safetensors one.safetensors || fail "quoted, and back"
rm there.safetensors again.safetensors

# ---- shapes: what was saved flat, and what was packed ----

cat >flat.json <<'EOF'
{"embed.weight": [40], "layers.*.w": [-1], "head.scale": [1]}
EOF
cat >shaped.json <<'EOF'
{"embed.weight": [-1, 8], "layers.*.w": [15, 10], "head.scale": []}
EOF
for ranks in 1 3; do
    code 0 "$czero" convert ck2 flat --ranks $ranks --reshape flat.json
    code 0 "$czero" verify flat
    code 0 "$czero" inspect --all flat
    has out "[150]"
    "$job" load 2 flat never.safetensors 2>err && fail "another shape was loaded"
    has err "has shape [15, 10], in the checkpoint [150] (czero convert --reshape gives it another)"
    code 0 "$czero" convert flat again --ranks 2 --reshape shaped.json
    code 0 "$czero" diff again ck2
    "$job" load 3 again again.safetensors
    cmp again.safetensors one.safetensors || fail "flat on $ranks ranks, with its shapes again"
    rm -r flat again again.safetensors
done

# a matrix is packed rows: each becomes a tensor, with its rows of the state, in its group
cat >split.json <<'EOF'
{"layers.*.w": {"layers.*.head": [4, 10], "layers.*.row.*": [11, 10]},
 "norm.mean": {"norm.first": [2], "norm.rest": [3]}}
EOF
code 0 "$czero" convert ck3 rows --ranks 2 --split split.json
code 0 "$czero" verify rows
code 0 "$czero" convert rows rows.safetensors
code 0 "$czero" convert ck1 other.safetensors --split split.json
cmp rows.safetensors other.safetensors || fail "split, from parts and from one rank"
code 0 "$czero" inspect --all rows
has out "361 elements in 29 tensors"
has out "6 elements in 3 tensors"
has out "1  25 parameters: layers.0.head, layers.0.row.0, "
# of a value and of a slot: the same bytes, cut
"$job" tensor rows.safetensors layers.1.head >a
"$job" tensor rows.safetensors layers.1.row.0 >>a
for k in 1 2 3 4 5 6 7 8 9 10; do "$job" tensor rows.safetensors layers.1.row.$k >>a; done
"$job" tensor one.safetensors layers.1.w >b
cmp a b || fail "the pieces of a value"
"$job" tensor rows.safetensors optimizer/exp_avg/layers.0.head >a
for k in 0 1 2 3 4 5 6 7 8 9 10; do
    "$job" tensor rows.safetensors optimizer/exp_avg/layers.0.row.$k >>a
done
"$job" tensor one.safetensors optimizer/exp_avg/layers.0.w >b
cmp a b || fail "the pieces of a slot"
rm -r rows

# shapes are those of new names
echo '{"wte": [4, 10]}' >rules.json
code 0 "$czero" convert ck1 there.safetensors --rename 'embed.weight=wte' --reshape rules.json
rm there.safetensors

# ---- what is refused: nothing is there afterwards ----

refused() { # WORDS OPTION…
    words=$1
    shift
    code 2 "$czero" convert ck2 never.safetensors "$@"
    has err "$words"
    [ ! -e never.safetensors ] || fail "something was made with $*"
    code 2 "$czero" convert ck2 never --ranks 2 "$@"
    [ ! -e never ] || fail "a folder was made with $*"
}
refused "two tensors would be called 'layers.0': of 'layers.0.w' and of 'layers.0.b'" --rename 'layers.0.*=layers.0'
refused "two tensors would be called 'x'" --rename '*=x'
refused "two tensors would be called 'empty'" --rename 'norm.seen=empty'
code 2 "$czero" convert ck2 never.safetensors --rename 'embed.weight=optimizer/exp_avg/head.scale'
has err "names that begin with optimizer/ or common/ are those of state"
[ ! -e never.safetensors ] || fail "something was made beside a slot of that name"
refused "--rename 'nothing=x': no tensor has such a name; there is 'embed.weight'" --rename 'nothing=x'
refused "--strip-prefix 'module.': no tensor" --strip-prefix module.
refused "nothing would be left of the name 'empty'" --strip-prefix empty
refused "--rename 'empty': wanted: FROM=TO" --rename empty
refused "--rename 'empty\\=x': wanted: FROM=TO" --rename 'empty\=x'
refused "a name is empty" --rename '=x'
refused "a name is empty" --rename 'empty='
refused "TO has 2 stars, and FROM 1" --rename 'layers.*=*.*'
refused "more than 16 stars" --rename '*****************=x'
refused "ends with '\\'" --rename 'empty=x\'
refused "a star has no meaning here" --strip-prefix '*'
refused "which is no UTF-8" --rename "$(printf 'empty=\377')"
refused "would be called '?[31m'" --rename "$(printf 'e*=\033[31m')"
code 2 "$czero" convert ck2 never --ranks 2 --reshape a --reshape b
has err "--reshape is given twice"
refused "no-such.json" --reshape no-such.json

rules() { # WORDS JSON
    printf '%s' "$2" >rules.json
    refused "$1" --reshape rules.json
}
rules "'embed.weight' has 40 elements: its shape in the rules has another number" '{"embed.weight": [3, 4]}'
rules "there is no whole number for -1" '{"embed.weight": [-1, 7]}'
rules "there is no whole number for -1" '{"empty": [-1, 0]}'
rules "-1 more than once" '{"embed.weight": [-1, -1]}'
rules "something that is no size" '{"embed.weight": [-2, 4]}'
rules "something that is no size" '{"embed.weight": [4.5]}'
rules "a list of 8 whole numbers at most" '{"embed.weight": [1,1,1,1,1,1,1,1,40]}'
rules "a list of 8 whole numbers at most" '{"embed.weight": 40}'
rules "another number" '{"embed.weight": [9223372036854775807, 9223372036854775807]}'
rules "'nobody': no tensor that is left has such a name" '{"nobody": [1]}'
rules "no tensor that is left" '{"layers.*": [-1], "layers.0.w": [150]}' # the first one has them all
rules "is split into nothing" '{"embed.weight": {}}'
rules "its pieces in the rules have fewer" '{"embed.weight": {"a": [39]}}'
rules "its pieces in the rules have more" '{"embed.weight": {"a": [39], "b": [2]}}'
rules "-1 is for a tensor that is not split" '{"embed.weight": {"a": [-1]}}'
rules "two stars or more than the name" '{"embed.weight": {"a.*.*": [5, 8]}}'
rules "there is no dimension for its star" '{"head.scale": {"a.*": []}}'
rules "none, or too many tensors" '{"empty": {"a.*": [0]}}'
rules "none, or too many tensors" '{"empty": {"a.*": [4611686018427387904, 0]}}'
rules "the tensors that pieces become" '{"empty": {"a.*": [16000000, 0]}}' # 32 MiB and 20 times the values
rules "rules.json" '{"embed.weight": {"a": [20], "\u0061": [20]}}'
rules "two tensors would be called 'empty'" '{"embed.weight": {"empty": [20], "b": [20]}}'
rules "rules.json" '["embed.weight"]'
rules "rules.json" '{"embed.weight": [40]'
rules "rules.json" ''
# a second name of a tensor is one of all of it
safetensors tied.safetensors '{"__metadata__":{"head":"wte"},"wte":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]}}' 32
echo '{"wte": {"wte.*": [4, 2]}}' >rules.json
code 2 "$czero" convert tied.safetensors never.safetensors --split rules.json
has err "'wte' would be split, and 'head' is another name of all of it"
[ ! -e never.safetensors ] || fail "a tensor with two names was split"
safetensors two.safetensors '{"__metadata__":{"head":"a"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}' 2
code 2 "$czero" convert two.safetensors never.safetensors --rename 'b=head'
has err "a tensor would be called 'head', and 'head', another name of 'a', too"
safetensors two.safetensors '{"__metadata__":{"p.h":"p.a","q.h":"q.b"},"p.a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"q.b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}' 2
code 2 "$czero" convert two.safetensors never.safetensors --strip-prefix p. --strip-prefix q.
has err "two tied names would be called 'h'"
[ ! -e never.safetensors ] || fail "a name is that of two"
code 0 "$czero" convert tied.safetensors there.safetensors --rename 'wte=head' # now it has one
code 0 "$czero" inspect there.safetensors
hasnt out "tied name"
rm there.safetensors
code 0 "$czero" convert tied.safetensors there.safetensors --rename 'wte=x'
code 0 "$czero" inspect there.safetensors
has out "head: is x"
echo "convert_names: fine"
