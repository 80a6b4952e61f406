#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/multihost/two_hosts.sh EXAMPLES: two hosts with two ranks each train the MLP to the same bits as four
# thread ranks, and their traffic went over the link. Exits with 77 (skipped) where it cannot be tried.
set -eu
examples=$1
here=$(dirname "$0")

skip() {
    echo "skipped: $*"
    exit 77
}

command -v ip >/dev/null || skip "no ip command (package iproute2)"
command -v mpirun.openmpi >/dev/null || skip "no mpirun.openmpi (package openmpi-bin)"
[ -x "$examples/05_mpi" ] || skip "05_mpi was not built"
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
! ip netns list | grep -q '^czsw' || skip "another run has its hosts up"
ip netns add czprobe 2>/dev/null || skip "network namespaces are not allowed here"
ip netns del czprobe

dir=$(mktemp -d)
trap 'sh "$here/down.sh" "$dir"' EXIT
sh "$here/up.sh" "$dir" 2 >"$dir/up.log" 2>&1 ||
    { cat "$dir/up.log"; skip "virtual links are not allowed here"; }

CZERO_RANKS=4 "$examples/03_mnist" 60 >"$dir/threads"
sh "$here/run.sh" "$dir" "$examples/05_mpi" 60 >"$dir/hosts" 2>"$dir/errors" ||
    { cat "$dir/errors" >&2; exit 1; }
cat "$dir/hosts"
grep -q 'weights [0-9a-f]' "$dir/threads"
cmp "$dir/threads" "$dir/hosts"

sent=$(ip netns exec czh0 awk '/cz0:/ { sub(/.*:/, ""); print $9 }' /proc/net/dev)
echo "$sent bytes left the first host"
[ "$sent" -gt 10000000 ] # 60 steps over 400 kB of parameters
