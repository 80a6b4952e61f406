#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/valgrind.sh BUILD [TEST…]: some tests of every part under valgrind: no leak, no read of memory that was never
# written (which the sanitizers do not see). TEST: PART/test_NAME.
set -eu
build=$1
shift
[ $# -gt 0 ] || set -- base/test_options base/test_status state/test_tree shard/test_intersect tensor/test_model \
    rule/test_registry optim/test_dict sched/test_state group/test_collectives group/test_leave group/test_listed \
    ddp/test_pass hooks/test_quantize join/test_protocol averaging/test_averager zero/test_step \
    checkpoint/test_keeping checkpoint/test_safetensors checkpoint/test_pickle plan/test_shapes
export CZERO_CPU=v3 # valgrind knows no AVX-512
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for test; do
    if valgrind --quiet --leak-check=full --show-leak-kinds=definite,indirect,possible --errors-for-leak-kinds=definite,indirect,possible \
        --track-fds=no --error-exitcode=99 --fair-sched=yes "$build/tests/$test" >"$log" 2>&1; then
        echo "valgrind: $test: clean"
    else
        echo "valgrind: $test: NOT CLEAN"
        tail -n 60 "$log"
        failed=1
    fi
done
exit $failed
