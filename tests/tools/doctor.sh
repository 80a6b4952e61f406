#!/bin/sh
# SPDX-License-Identifier: MIT
# czero doctor: recordings of a program that stalls say who waited for whom, and in which operation.
. "$(dirname "$0")/common.sh"

mkdir recordings
export CZERO_FLIGHT_RECORDER=$work/recordings CZERO_LOG=error

# Rank 2 of 3 does not come.
"$job" stall late
code 1 "$czero" doctor recordings
has out "ranks 0, 1 wait in all_reduce 'loss' (operation 5) since"
has out "rank 2 has not come to it: its last was all_reduce 'loss' (operation 4)"
has out "try:"
code 1 "$czero" doctor --json recordings
json false fine
json '"late"' groups 0 state
json '[0,1]' groups 0 waiting
json '[2]' groups 0 late
json '[]' groups 0 unrecorded

# Without the file of rank 2, as if it had been killed.
rm recordings/*-rank2.json
code 1 "$czero" doctor recordings
has out "there is no recording of rank 2"
rm recordings/*

# Ranks of a sub-group have their global ranks, and it has a name of its own.
"$job" stall sub
code 1 "$czero" doctor recordings
has out "rank 3 has not come"
hasnt out "rank 1 has not come"
rm recordings/*

# A group that is well.
"$job" stall fine
code 0 "$czero" doctor recordings
has out "nobody waits"
code 0 "$czero" doctor --json --all recordings
json true fine

rm recordings/*

# Ranks that make different calls. The files, one by one.
"$job" stall late
one=$(ls recordings/*-rank0.json) two=$(ls recordings/*-rank1.json)
sed 's/"all_reduce", "label": "loss"/"broadcast", "label": "weights"/' "$two" >other.json
code 1 "$czero" doctor "$one" other.json
has out "ranks 0 and 1 did different things at the same place"
has out "broadcast 'weights'"

# What is not a recording, and nothing at all.
mkdir empty
code 2 "$czero" doctor empty
has err CZERO_FLIGHT_RECORDER
code 2 "$czero" doctor nowhere
echo '{"operations": 3, "name": []}' >broken.json
code 2 "$czero" doctor broken.json
has err "no flight recording"
printf '[[[[' >recordings/czero-1-group0-rank9.json
code 1 "$czero" doctor recordings
has err "czero-1-group0-rank9.json is no flight recording"
code 2 "$czero" doctor
echo "doctor: fine"
