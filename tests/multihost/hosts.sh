# SPDX-License-Identifier: MIT
# tests/multihost/hosts.sh: to be sourced by what uses the hosts of up.sh; `here` is this folder.

skip() {
    echo "skipped: $*"
    exit 77
}

# hosts_allowed: can up.sh make hosts here? If not, says why not.
hosts_allowed() {
    if ! command -v ip >/dev/null; then
        echo "no ip command (package iproute2)"
    elif [ "$(id -u)" != 0 ]; then
        echo "network namespaces need root"
    elif ! unshare --mount mount -t tmpfs none /dev/shm 2>/dev/null; then
        echo "mount namespaces are not allowed here"
    elif ! unshare --net true 2>/dev/null; then
        echo "network namespaces are not allowed here"
    elif ! unshare --net sh -c 'ip link add cz0 type veth peer name cz1 && ip link add br0 type bridge' \
        2>/dev/null; then
        echo "virtual links are not allowed here"
    else
        return 0
    fi
    return 1
}

# own_hosts SCRIPT ARGUMENTS…: run it again with names of hosts, and shared memory, that nobody else
# sees and that end with it, however it ends. Returns at once in that second run.
own_hosts() {
    [ "${CZ_OWN_HOSTS:-no}" = no ] || return 0
    export CZ_OWN_HOSTS=yes
    exec unshare --mount sh -c 'mkdir -p /run/netns && mount -t tmpfs none /run/netns &&
        mount -t tmpfs none /dev/shm && exec sh "$@"' sh "$@"
}

now() { cut -d ' ' -f 1 /proc/uptime; } # in seconds

# within SECONDS CONDITION…: 0 as soon as it holds
within() {
    until_then=$(now | awk -v more="$1" '{ print $1 + more }')
    shift
    while ! "$@"; do
        awk -v t="$(now)" -v u="$until_then" 'BEGIN { exit !(t + 0 < u + 0) }' || return 1
        sleep 0.05
    done
}
