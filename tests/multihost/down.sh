#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/multihost/down.sh DIR: end what still runs on the hosts of up.sh, and remove them. Also
# after a failure, and more than once.
dir=$1
for host in $(ip netns list | awk '$1 ~ /^cz(h[0-9]+|sw)$/ { print $1 }'); do
    for pid in $(ip netns pids "$host"); do
        kill -KILL "$pid" 2>/dev/null || true # it may have ended by itself
    done
    ip netns del "$host"
done
rm -rf "$dir"
