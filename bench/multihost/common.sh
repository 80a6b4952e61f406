# SPDX-License-Identifier: MIT
# What benchmarks on two hosts, network namespaces of this machine, have in common; where those are
# not allowed: a line that says so.
tests=$(dirname "$0")/../../tests/multihost
. "$tests/hosts.sh"

skip() {
    echo "skipped: $*"
    exit 0
}

command -v mpirun.openmpi >/dev/null || skip "no mpirun.openmpi (package openmpi-bin)"
without=$(hosts_allowed) || skip "$without"

# two_hosts: in $dir, for as long as the script runs
two_hosts() {
    dir=$(mktemp -d)
    trap 'sh "$tests/down.sh" "$dir"' EXIT
    sh "$tests/up.sh" "$dir" 2
}

# slow_links: 1 Gbit/s each way
slow_links() {
    command -v tc >/dev/null || skip "no tc command (package iproute2)"
    for host in czh0 czh1; do
        tc -n $host qdisc add dev cz0 root tbf rate 1gbit burst 256kb latency 50ms ||
            skip "links cannot be shaped here (tc: tbf)"
    done
}
