#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/multihost/up.sh DIR N: hosts czh0 … czh(N-1) on this machine: network namespaces on a
# private bridge, 10.77.0.1 and following; no traffic leaves it. DIR gets the agent that starts
# commands on a host, each with a host name of its own. Needs root and iproute2. down.sh takes them
# away again.
set -eu
dir=$1
count=$2
mkdir -p "$dir"
cat >"$dir/agent" <<'AGENT'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts /bin/sh -c "hostname $host; $*"
AGENT
chmod +x "$dir/agent"
ip netns add czsw
ip -n czsw link add br0 type bridge
ip -n czsw link set br0 up
i=0
while [ "$i" -lt "$count" ]; do
    ip netns add "czh$i"
    ip link add cz0 netns "czh$i" type veth peer name "p$i" netns czsw
    ip -n czsw link set "p$i" master br0 up
    ip -n "czh$i" link set lo up
    ip -n "czh$i" addr add "10.77.0.$((i + 1))/24" dev cz0
    ip -n "czh$i" link set cz0 up
    i=$((i + 1))
done
