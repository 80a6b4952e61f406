#!/bin/sh
# SPDX-License-Identifier: MIT
# czero diff: the same whatever the form; what differs is named and measured.
. "$(dirname "$0")/common.sh"

"$job" save 2 0 0 a a.safetensors hf 700
"$job" save 3 1 0 b
"$job" save 2 0 1 c c.safetensors

code 0 "$czero" diff a b
has out "the same: 30 tensors compared, equal in every bit"
code 0 "$czero" diff a hf
code 0 "$czero" diff a.safetensors b
code 0 "$czero" diff --all a b
has out "embed.weight"
code 0 "$czero" diff --json a b
json true same
json '[]' tensors

code 1 "$czero" diff a c
has out "layers.*.w (2)"
has out "(--all: each)"
hasnt out "layers.0.w"
has out "B is 3 steps after A; values differ by"
has out "the optimizer's state differs by"
has out "exp_avg_sq"
has out "step: 3 in A, 6 in B"
has out "different: "
code 1 "$czero" diff --all a c
has out "layers.0.w"
code 1 "$czero" diff --json a c
json 40 tensors 0 different
code 1 "$czero" diff c a
has out "B is 3 steps before A"

# Models whose tensors have other names: which are whose is said.
safetensors plain.safetensors '{"a.w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a.b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"c":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}}' 20
safetensors wrapped.safetensors '{"m.a.w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"m.a.b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"m.c":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}}' 20
safetensors renamed.safetensors '{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"z":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}}' 20
code 1 "$czero" diff plain.safetensors wrapped.safetensors
has out "the names of B are those of A with 'm.' before them, 3 of 3 tensors"
code 1 "$czero" diff wrapped.safetensors plain.safetensors
has out "the names of A are those of B with 'm.' before them"
code 1 "$czero" diff plain.safetensors renamed.safetensors
has out "the same shapes in the same order"
code 1 "$czero" diff --json plain.safetensors renamed.safetensors
json 0 compared

code 1 "$czero" diff --quiet a c
[ ! -s out ] || fail "--quiet prints"
code 1 "$czero" diff --json a c
json false same
code 1 "$czero" diff --parameters-only a c
hasnt out "step:"

# Generations of a folder by their step: for both sides, or for each.
mkdir both
cp -r a/00000001-step-3 both/00000001-step-3
cp -r c/00000001-step-6 both/00000002-step-6
code 1 "$czero" diff both a
code 0 "$czero" diff --step 3 both a
code 0 "$czero" diff --step 3 a.safetensors both
code 0 "$czero" diff --step 6 both both
code 1 "$czero" diff --step 3 --step 6 both both
has out "step: 3 in A, 6 in B"
code 2 "$czero" diff --step 4 both a
has err "no complete generation of step 4"
code 2 "$czero" diff --step 3 a.safetensors a.safetensors
has err "--step chooses among the generations in a folder"
code 2 "$czero" diff --step 3 --step 3 --step 3 both both
has err "--step is given once, or twice"

# The last bit of one number: 1 ulp, in this tensor, and nothing else. The last tensor in the file's
# data is a slot.
cp a.safetensors d.safetensors
"$job" flip d.safetensors -4
code 1 "$czero" diff a.safetensors d.safetensors
has out "1 of 30"
code 1 "$czero" diff --json a.safetensors d.safetensors
json 1 differing
json 1 tensors 0 ulps
json 1 tensors 0 different
code 0 "$czero" diff --ulps 1 a.safetensors d.safetensors
has out "the same, to 1 ulps"
code 1 "$czero" diff --ulps 0 a.safetensors d.safetensors

# Another program's model: values only.
"$czero" convert --quiet a model.safetensors --parameters-only
code 0 "$czero" diff a model.safetensors
has out "only these were compared"

code 2 "$czero" diff a
has err "two checkpoints are wanted"
code 2 "$czero" diff a nowhere
code 2 "$czero" diff a b c
cp -r a bad
"$job" flip bad/00000001-step-3/index.json 50
code 2 "$czero" diff a bad
echo "diff: fine"
