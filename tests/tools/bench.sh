#!/bin/sh
# SPDX-License-Identifier: MIT
# czero bench measures everything once; figures are no matter here.
. "$(dirname "$0")/common.sh"

code 0 "$czero" bench --ranks 3 --bytes 4K --bytes 1K --elements 1000 --rounds 2
for word in all_reduce reduce_scatter all_gather broadcast adamw sgd radam; do
    has out $word
done
code 0 "$czero" bench --ranks 2 --bytes 100 --elements 100 --rounds 1 --json
json 2 ranks
json 100 collectives 0 bytes
json '"all_reduce"' collectives 0 operation
json 100 rules 0 elements
code 0 "$czero" bench --only rules --elements 10 --rounds 1
hasnt out all_reduce
code 0 "$czero" bench --only collectives --bytes 1 --rounds 1 --ranks 1
hasnt out adamw
code 2 "$czero" bench --only nothing
code 2 "$czero" bench something
echo "bench: fine"
