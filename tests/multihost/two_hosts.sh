#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/multihost/two_hosts.sh TESTS EXAMPLES: on two hosts with two ranks each, wherever the ranks
# are placed, collectives give their values and the bits of tree sums, and the MLP is trained to the
# same bits as on four thread ranks; and their traffic went over the link. Exits with 77 (skipped)
# where it cannot be tried.
set -eu
tests=$1
examples=$2
here=$(dirname "$0")
. "$here/hosts.sh"

command -v mpirun.openmpi >/dev/null || skip "no mpirun.openmpi (package openmpi-bin)"
[ -x "$examples/03_mnist" ] || skip "03_mnist was not built"
without=$(hosts_allowed) || skip "$without"
own_hosts "$0" "$@"

dir=$(mktemp -d)
trap 'sh "$here/down.sh" "$dir"' EXIT
sh "$here/up.sh" "$dir" 2

# run PLACEMENT COMMAND…
run() {
    sh "$here/run.sh" "$dir" --map-by "$@" 2>"$dir/errors" || { cat "$dir/errors" >&2; exit 1; }
}

bytes_sent() {
    ip netns exec czh0 awk '/cz0:/ { sub(/.*:/, ""); print $9 }' /proc/net/dev
}

CZERO_RANKS=4 "$examples/03_mnist" 60 >"$dir/threads"
grep -q 'weights [0-9a-f]' "$dir/threads"
for placement in slot:0011 node:0101; do # block, round robin
    by=${placement%:*}
    hosts=$(run "$by" --tag-output hostname | sort | sed 's/.*czh//' | tr -d '\n')
    [ "$hosts" = "${placement#*:}" ] || { echo "by $by: ranks are on hosts $hosts" >&2; exit 1; }
    run "$by" "$tests/collectives" ours
    before=$(bytes_sent)
    run "$by" "$examples/03_mnist" 60 >"$dir/hosts"
    cat "$dir/hosts"
    cmp "$dir/threads" "$dir/hosts"
    sent=$(($(bytes_sent) - before))
    echo "by $by: $sent bytes left the first host"
    [ "$sent" -gt 10000000 ] # 60 steps over 400 kB of parameters
done
