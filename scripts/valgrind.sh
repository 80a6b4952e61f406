#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/valgrind.sh BUILD [TEST…]: some tests of every part under valgrind: no leak, no read of
# memory that was never written (which the sanitizers do not see). TEST: PART/test_NAME.
set -eu
build=$1
shift
[ $# -gt 0 ] || set -- base/test_options base/test_status base/test_open state/test_tree shard/test_owner_table \
    rule/test_registry optim/test_dict sched/test_state group/test_order ddp/test_edges hooks/test_recorder \
    averaging/test_averager zero/test_describe checkpoint/test_keeping checkpoint/test_safetensors
export CZERO_CPU=v3 # valgrind knows no AVX-512

# With one test named: that one. Else each in a process of its own, as many at once as there are
# cores.
if [ $# -gt 1 ]; then
    printf '%s\n' "$@" | xargs -n 1 -P "$(nproc)" "$0" "$build"
    exit
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite,possible --error-exitcode=99 \
    --fair-sched=yes "$build/tests/$1" >"$log" 2>&1; then
    echo "valgrind: $1: clean"
else
    echo "valgrind: $1: NOT CLEAN"
    tail -n 60 "$log"
    exit 1
fi
