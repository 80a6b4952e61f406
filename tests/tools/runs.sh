#!/bin/sh
# SPDX-License-Identifier: MIT
# czero diff of two runs, and czero verify --run: the first step that differs is named, a checkpoint
# is what the log of its run says or it is said what is not.
. "$(dirname "$0")/common.sh"

for ranks in 1 2 3; do
    for partition in 0 1; do
        "$job" run $ranks $partition 0 run$ranks$partition 6 1
    done
done

# ---- diff ----

for other in run11 run20 run21 run30 run31; do
    code 0 "$czero" diff run10 $other
    has out "the same: 6 steps compared, 6 losses, 6 fingerprints and their chain, equal in every bit"
    code 0 "$czero" diff run10/ $other/metrics.jsonl
done
code 0 "$czero" diff --json run10 run31
json true same
json 6 fingerprints
json true chains
json null first
code 0 "$czero" diff --quiet run10 run31
[ ! -s out ] || fail "--quiet prints"

# A value has another sign after step 4: the next loss is the same, as it is the sum of squares
"$job" run 2 1 0 flipped 6 1 4
code 1 "$czero" diff run10 flipped
has out "fingerprint  step 5: "
has out "chain        step 5: "
has out "loss         step 6: "
has out "of A before: run10/checkpoints/00000001-step-3"
has out "of B from there on: flipped/checkpoints/00000002-step-6"
has out "czero diff --step 6 run10/checkpoints flipped/checkpoints"
has out "different: step 5 is the first of 6 steps that differs; up to step 4 all is the same"
code 1 "$czero" diff --json run10 flipped
json false same
json 5 first
json 4 last_same
json 5 first_chain
json '"flipped/checkpoints/00000002-step-6"' b checkpoints after
code 1 "$czero" diff --quiet run10 flipped
[ ! -s out ] || fail "--quiet prints"

# Another training
"$job" run 2 0 5 other 6 1
code 1 "$czero" diff run10 other
has out "different: step 1 is the first of 6 steps that differs"
hasnt out "before"

# One is longer; as far as both go they are the same.
"$job" run 3 0 0 long 9 1
code 0 "$czero" diff run10 long
has out "the same: 6 steps compared"
has out "B goes on to step 9"
code 0 "$czero" diff long run10
has out "A goes on to step 9"

# Fingerprints of other steps, and none
"$job" run 2 0 0 second 6 2
code 0 "$czero" diff run10 second
has out "fingerprints are of different steps in A and B: 3 that both have were compared, chains were not"
has out "6 losses, 3 fingerprints, equal"
"$job" run 2 0 0 third 6 3
code 0 "$czero" diff second third
has out "1 that both have"
code 0 "$czero" diff second second
has out "3 fingerprints and their chain"
"$job" run 2 0 0 second-flipped 6 2 3
code 1 "$czero" diff second second-flipped
has out "fingerprint  step 4: "
has out "different: step 4 is the first of 6 steps that differs; up to step 3 all is the same"
"$job" run 2 0 0 plain 6 0
code 0 "$czero" diff run10 plain
has out "no fingerprints in B: only losses were compared"
has out "the same: 6 steps compared, 6 losses, equal"
"$job" run 2 0 0 plain-flipped 6 0 2
code 1 "$czero" diff plain plain-flipped
has out "no fingerprints in A and B"
has out "different: step 4 is the first"
sed 's/"loss":[^,]*,//' run10/metrics.jsonl >prints.jsonl
code 0 "$czero" diff run10 prints.jsonl
has out "6 steps compared, 6 fingerprints"
code 2 "$czero" diff prints.jsonl plain
has err "no step of A, which has 1 to 6, can be compared with one of B"
sed '1,2d' run10/metrics.jsonl >late.jsonl
code 0 "$czero" diff run10 late.jsonl
has out "4 fingerprints, equal" # of other links
sed 's/\("step":6.*"chain":"\).\{8\}/\101234567/' run10/metrics.jsonl >chain.jsonl
code 1 "$czero" diff run10 chain.jsonl
has out "an earlier step differs"

# It went back to a checkpoint: later lines count, and what came after them before does not.
head -n 5 flipped/metrics.jsonl >back.jsonl
tail -n 3 run10/metrics.jsonl >>back.jsonl
code 0 "$czero" diff run10 back.jsonl
has err "back.jsonl goes back to an earlier step 1 time: the later lines count"
cat flipped/metrics.jsonl >short.jsonl
head -n 4 run10/metrics.jsonl | tail -n 1 >>short.jsonl
code 0 "$czero" diff run10 short.jsonl
has out "the same: 4 steps compared"

# Other lines, empty ones, a loss that is no number, and a line that was not finished
{
    echo '{"what":"a comment"}'
    echo
    sed 's/$/\r/' run10/metrics.jsonl
    echo '{"step":6,"val_loss":3}'
    printf '{"step":7,"loss":1.2'
} >rest.jsonl
code 0 "$czero" diff run10 rest.jsonl
has err "rest.jsonl: the last line is incomplete, and left out"
echo '{"step":1,"loss":null}' >null.jsonl
code 0 "$czero" diff null.jsonl null.jsonl
code 1 "$czero" diff null.jsonl plain
has out "nan in A"

# A zero of another sign is another number.
echo '{"step":1,"loss":0.0}' >zero.jsonl
echo '{"step":1,"loss":-0.0}' >minus.jsonl
code 1 "$czero" diff zero.jsonl minus.jsonl
has out "loss         step 1: 0 in A, -0 in B"

# Paths of checkpoints are given whole, to be copied from there.
long=$(printf '%0100d/%0100d' 0 0)
mkdir -p "$long"
cp -r flipped "$long/"
code 1 "$czero" diff run10 "$long/flipped"
has out "czero diff --step 6 run10/checkpoints $long/flipped/checkpoints"

# What is damaged or no log is said, with its line.
# wrong WORDS TEXT: the log of run10 with this as its third line
wrong() {
    { head -n 2 run10/metrics.jsonl; printf '%b\n' "$2"; tail -n 3 run10/metrics.jsonl; } >wrong.jsonl
    code 2 "$czero" diff run10 wrong.jsonl
    has err "wrong.jsonl: line 3"
    has err "$1"
    code 2 "$czero" verify run10/checkpoints --run wrong.jsonl
    has err "wrong.jsonl: line 3"
}
wrong "expected" '{"step":3,"loss":'
wrong "no JSON object" '[3]'
wrong "'step' is a text" '{"step":"3","loss":1}'
wrong "'step' is -3" '{"step":-3,"loss":1}'
wrong "too big integer" '{"step":99999999999999999999,"loss":1}'
wrong "'loss' is no number" '{"step":3,"loss":[1]}'
wrong "'fingerprint' is" '{"step":3,"fingerprint":"12","chain":"12"}'
wrong "'chain' is missing" '{"step":3,"fingerprint":"00000000000000000000000000000000"}'
wrong "'fingerprint' is" '{"step":3,"fingerprint":"0000000000000000000000000000000G","chain":"12"}'
wrong "duplicate" '{"step":3,"step":4,"loss":1}'
wrong "line 3" 'a\000b'
wrong "line 3" "$(printf '\\377\\376')"
wrong "line 3" "$(head -c 100000 /dev/zero | tr '\0' '[')"
head -c 1500000 /dev/zero | tr '\0' ' ' >wide.jsonl
code 2 "$czero" diff run10 wide.jsonl
has err "wide.jsonl: line 1 has more than"
head -c 300000 /dev/zero | tr '\0' '\n' >empty.jsonl
code 2 "$czero" diff run10 empty.jsonl
has err "no line of it has a step with a loss or a fingerprint"
mkdir folder.jsonl none
code 2 "$czero" diff run10 folder.jsonl
code 2 "$czero" diff run10 none
has err "run10 is a run, with metrics.jsonl, and none is not"
code 2 "$czero" diff run10/checkpoints run10
has err "run10 is a run"
code 2 "$czero" diff run10 nowhere
for option in '--ulps 1' '--step 3' --all --parameters-only; do
    # shellcheck disable=SC2086
    code 2 "$czero" diff $option run10 run20
    has err "${option% *} is for checkpoints, and these are runs"
done
# A folder with checkpoints of its own is one of checkpoints, whatever else is there.
cp -r run10/checkpoints both
cp run10/metrics.jsonl both/
code 0 "$czero" diff both run20/checkpoints
has out "tensors compared"

# ---- verify ----

for ranks in 1 2 3; do
    code 0 "$czero" verify --all run$ranks$((ranks % 2))/checkpoints --run run10
    has out "as the log of its run says, and the chain up to it holds"
    has out "3 fingerprints up to step 3 in run10/metrics.jsonl"
done
code 0 "$czero" verify --json --run run10 run31/checkpoints
json true fine
json 6 checkpoints 0 links
json "\"$(sed -n 's/.*"step":6.*"fingerprint":"\([0-9a-f]*\)".*/\1/p' run10/metrics.jsonl)\"" checkpoints 0 fingerprint
code 0 "$czero" verify --quiet --run run10 run31/checkpoints
[ ! -s out ] || fail "--quiet prints"
"$czero" convert --quiet run31/checkpoints one.safetensors
code 0 "$czero" verify --run run10 one.safetensors

# Another run's
code 1 "$czero" verify --run run10 flipped/checkpoints
has out "run10/metrics.jsonl: the fingerprint of step 6 is"
has out "of another run"
has out "not well"
code 0 "$czero" verify --step 3 --run run10 flipped/checkpoints
code 1 "$czero" verify --json --run other run10/checkpoints
json false fine

# A byte of a value, and of the optimizer's state, in files whose checksums fit
for offset in -4 -4000; do
    cp one.safetensors changed.safetensors
    "$job" flip changed.safetensors $offset
    "$czero" convert --quiet --format sharded changed.safetensors changed
    code 0 "$czero" verify changed
    code 1 "$czero" verify --run run10 changed
    has out "the fingerprint of step 6 is"
    has out "the fingerprint that was saved with it is"
    code 1 "$czero" verify --run run10 changed.safetensors
    rm -r changed
done

# A log that was changed, or is not whole
code 1 "$czero" verify --run chain.jsonl run10/checkpoints
has out "the chain breaks at step 6"
code 1 "$czero" verify --run late.jsonl run10/checkpoints
has out "the chain breaks at step 3"
sed 's/\("step":2.*"fingerprint":"\).\{8\}/\101234567/' run10/metrics.jsonl >print.jsonl
code 1 "$czero" verify --run print.jsonl run10/checkpoints
has out "the chain breaks at step 2"
code 0 "$czero" verify --run back.jsonl run10/checkpoints

# Steps without a fingerprint in the log: the checkpoint has its own.
code 0 "$czero" verify --step 3 --run second second/checkpoints
has out "as when it was saved"
has out "1 fingerprint up to step 3"
code 0 "$czero" verify --step 6 --run second second/checkpoints
has out "as the log of its run says"
code 1 "$czero" verify --step 6 --run second second-flipped/checkpoints
code 2 "$czero" verify --run plain plain/checkpoints
has err "it has no fingerprint of step 6, and neither has the checkpoint"
code 2 "$czero" verify --run nowhere run10/checkpoints
"$czero" convert --quiet --parameters-only run10/checkpoints model.safetensors
code 2 "$czero" verify --run run10 model.safetensors
has err "do not say of which step"
cp -r run10/checkpoints bad
"$job" flip bad/00000002-step-6/rank-00000-of-00001.safetensors -1
code 1 "$czero" verify --run run10 bad
has out "rank-00000-of-00001.safetensors"
hasnt out "fingerprint"
echo "runs: fine"
