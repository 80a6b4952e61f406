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

# recording RANK SIZE NAME OPERATIONS
recording() {
    printf '{"name":"%s","rank":%d,"size":%d,"global_rank":%d,"written":5.5,"process":7,"members":[%s],"operations":[%s]}' \
        "$3" "$1" "$2" "$1" "$(seq -s, 0 $(($2 - 1)))" "$4"
}
operation() { # SEQUENCE STATUS
    printf '{"lane":0,"sequence":%s,"operation":"all_reduce","label":"a\\n  try: b\\u001b[1m","status":"%s"}' "$1" "$2"
}

# Of an earlier job on more ranks something is left in the folder: that is another group.
mkdir earlier
recording 2 3 world "$(operation 5 'in flight')" >earlier/czero-1-group0-rank2.json
recording 0 2 world "$(operation 3 CZ_OK)" >earlier/czero-2-group0-rank0.json
recording 1 2 world "$(operation 3 'in flight')" >earlier/czero-2-group0-rank1.json
code 1 "$czero" doctor earlier
has out "group world: 2 ranks"
has out "rank 1 waits in all_reduce"
hasnt out "rank 0 has not come"
has out "group world: 3 ranks"
has out "there is no recording of ranks 0, 1"

# Who it is of must be known: a rank without its global rank, or with another one than it is said to have.
recording 0 2 one "$(operation 1 'in flight')" | sed 's/"global_rank":0,//' >nobody.json
code 2 "$czero" doctor nobody.json
has err "no flight recording"
recording 0 2 one "$(operation 1 'in flight')" | sed 's/\[0,1\]/[0,"x"]/' >nobody.json
code 2 "$czero" doctor nobody.json

# What could not be read may be the one that waits.
recording 0 2 one "$(operation 1 CZ_OK)" >fine.json
code 0 "$czero" doctor fine.json
code 2 "$czero" doctor fine.json broken.json
has err "of 2 recordings 1 could not be read"
hasnt out "nobody waits"
code 2 "$czero" doctor --json fine.json broken.json
json false fine

# Names from a recording are no commands to a terminal, and make no lines of their own.
recording 0 2 'g\u001b[31m\nrank 0' "$(operation 3 'in flight')" >odd.json
code 1 "$czero" doctor odd.json
has out "group g?[31m?rank 0: 2 ranks"
has out "rank 0 waits in all_reduce 'a?  try: b?[1m' (operation 3)"
! grep -q "$(printf '\033')" out || fail "a name went to the terminal as it is"

# Numbers that no recorder writes: they are none.
recording 0 1 one "$(operation 1e300 'in flight'),$(operation -5 'in flight'),$(operation '"x"' 'in flight')" >numbers.json
code 0 "$czero" doctor numbers.json

# Many ranks: some have a sentence of their own, none is left out.
mkdir large
for rank in $(seq 0 29); do
    recording "$rank" 31 one "$(operation $((rank ? 1 : 2)) "$([ "$rank" = 0 ] && echo in flight)")" \
        >"large/czero-1-group0-rank$rank.json"
done
code 1 "$czero" doctor large
has out "rank 4 has not come to it: its last was"
has out "25 more have not come to it: ranks 5-29"
has out "there is no recording of rank 30"
has out "try: if they are only slow"

# As many operations as a file has room for cost time in proportion, and all files together what one would.
many=$(seq -f '{"lane":0,"sequence":%.0f}' -s, 30000)
recording 0 2 one "$many" >many0.json
recording 1 2 one "$many" >many1.json
(ulimit -t 5 && code 0 "$czero" doctor many0.json many1.json)
mkdir costly
recording 0 1 one "$(yes '{},' | head -n 300000 | tr -d '\n'){}" >costly/czero-1-group0-rank0.json
for rank in 1 2 3; do cp costly/czero-1-group0-rank0.json "costly/czero-1-group0-rank$rank.json"; done
code 2 "$czero" doctor costly
has err "its JSON would cost"
echo "doctor: fine"
