#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/multihost/chaos.sh PROGRAM SEED…: one trial for each seed. A job of tests/mpi/chaos.c on
# this machine or on two hosts, thread level, victim and more by chance; at a random moment a rank
# is killed, stopped, returns from main or calls exit, or the link of a host goes down, for good or
# for less than a second. Within the timeout every rank that is left must say which operation failed
# because of whom, and destroy its objects, or mpirun must end the job; after a short break of the
# link the job may also go on. No result may be wrong. `chaos.sh PROGRAM 17` repeats trial 17. Exits
# with 77 if every trial was skipped.
set -eu
program=$(realpath "$1")
here=$(dirname "$0")
. "$here/hosts.sh"

TIMEOUT=3 # of the groups, seconds
SLACK=40  # for a machine that is slow
export CZERO_TIMEOUT=$TIMEOUT CZERO_WARN=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none

command -v mpirun.openmpi >/dev/null || skip "no mpirun.openmpi (package openmpi-bin)"
without=$(hosts_allowed) && own_hosts "$0" "$@"
shift

dir=
job=
end_job() {
    [ -n "$dir" ] || return 0
    for pid in $(sed -n 's/^pid //p' "$dir"/log/rank.* 2>/dev/null); do
        [ "$(readlink "/proc/$pid/exe")" != "$program" ] || kill -KILL "$pid" # no other of that number
    done
    [ -n "$without" ] || sh "$here/down.sh" "$dir"
    [ -z "$job" ] || kill "$job" 2>/dev/null || true # it has 5 seconds
    wait
    rm -rf "$dir"
    dir=
    job=
}
trap end_job EXIT
trap 'exit 1' INT TERM

# choose SEED: place, event, level, ranks, victim, seconds before the event, seconds of a short
# break, and what mpirun does when a rank fails: end the job, or let the others find out.
choose() {
    awk -v seed="$1" '
    function chance(n) { x = x * 16807 % 2147483647; return int(x / 2147483647 * n) }
    BEGIN {
        count = split("one:kill one:stop one:return one:exit two:kill two:stop two:return two:exit " \
            "two:down two:blink", kinds, " ")
        split(kinds[(seed + count - 1) % count + 1], kind, ":")
        x = 1 + (seed * 7919 + 1) % 44021 * (seed * 104729 + 1) % 46337
        for (i = 0; i < 5; i++) chance(2)
        ranks = kind[1] == "two" ? 4 : 3 + chance(2)
        print kind[1], kind[2], chance(3) ? "multiple" : "funneled", ranks, chance(ranks), \
            chance(2000) / 1000, (100 + chance(800)) / 1000, chance(2) ? "ends" : "stays"
    }'
}

start() {
    mkdir "$dir/log"
    set -- "$program" "$level" "$dir/log"
    [ $mpirun = ends ] || set -- --enable-recovery "$@"
    if [ $place = two ]; then
        sh "$here/up.sh" "$dir" 2 || return 1
        sh "$here/run.sh" "$dir" --map-by slot "$@" >"$dir/out" 2>&1 &
    else
        timeout -k 5 100 mpirun.openmpi --mca orte_tmpdir_base "$dir" -n "$ranks" "$@" \
            >"$dir/out" 2>&1 &
    fi
    job=$!
}

ended() { ! kill -0 "$job" 2>/dev/null; }

# all LINE: does every rank in $watched have such a line?
all() {
    for rank in $watched; do
        grep -q "^$1" "$dir/log/rank.$rank" 2>/dev/null || return 1
    done
}

# rounds: the least that a rank has done
rounds() {
    for rank in $watched; do
        sed -n 's/^round //p' "$dir/log/rank.$rank" | tail -n 1
    done | sort -n | head -n 1
}

pid_of() { sed -n 's/^pid //p' "$dir/log/rank.$1"; }
gone() { [ "$(readlink "/proc/$(pid_of "$1")/exe")" != "$program" ]; }

# Open MPI ends a process that reads the memory of another, which was killed: that one cannot say
# anything.
let_go() {
    for rank in $watched; do
        if [ "$mpirun" = stays ] && gone "$rank" && ! grep -q ^destroyed "$dir/log/rank.$rank"; then
            watched=$(echo "$watched" | grep -vx "$rank")
            lost="$lost, rank $rank ended by Open MPI"
        fi
    done
}

strike() {
    case $event in
    kill) kill -KILL "$(pid_of "$victim")" ;;
    stop) kill -STOP "$(pid_of "$victim")" ;;
    return) kill -USR1 "$(pid_of "$victim")" ;;
    exit) kill -USR2 "$(pid_of "$victim")" ;;
    down) ip -n "czh$((victim / 2))" link set cz0 down ;;
    blink)
        ip -n "czh$((victim / 2))" link set cz0 down
        sleep "$break"
        ip -n "czh$((victim / 2))" link set cz0 up
        ;;
    esac
}

went_on() {
    [ "$event" = blink ] && [ "$(rounds)" -ge $((before + 30)) ]
}

over() {
    let_go
    ended || all destroyed || went_on
}

# blamed RANK: whom must it name? Of a link, somebody on the other side.
blamed() {
    case $event in
    down | blink) [ "$1" -lt 2 ] && echo "2 3" || echo "0 1" ;;
    *) echo "$victim" ;;
    esac
}

# Every error names an operation and who is to blame; perhaps others as well, whom that keeps
# waiting.
check_errors() {
    for rank in $watched; do
        named=$(sed -nE 's/^error: .*\(operation [0-9]+\): .*ranks? ([0-9]+(, [0-9]+)*).*/\1/p' \
            "$dir/log/rank.$rank" | tr -d ,)
        found=no
        for name in $named; do
            case " $(blamed "$rank") " in *" $name "*) found=yes ;; esac
        done
        [ $found = yes ] || return 1
    done
}

# What came of it, as a line; not 0: it should not have.
judge() {
    ! grep -qs '^wrong' "$dir"/log/rank.* || { echo "WRONG RESULT"; return 1; }
    ! grep -qE 'signal (4|6|7|8|11) |received signal|chaos\.c:[0-9]+:' "$dir/out" || { echo "CRASHED"; return 1; }
    if went_on; then
        echo "went on"
    elif all destroyed; then
        check_errors || { echo "NOBODY TO BLAME WAS NAMED"; return 1; }
        echo "reported$lost"
    elif ended; then
        echo "ended by mpirun"
    else
        echo "HANGS"
        return 1
    fi
}

trial() {
    read -r place event level ranks victim moment break mpirun <<CHOSEN
$(choose "$1")
CHOSEN
    what="seed $1: $ranks ranks on $place host(s), $level, mpirun $mpirun: $event $victim after $moment s"
    if [ "$place" = two ] && [ -n "$without" ]; then
        echo "$what: skipped: $without"
        return 0
    fi
    dir=$(mktemp -d)
    start || return 1
    watched=$(seq 0 $((ranks - 1)))
    within 60 all ready || { echo "$what: NOT READY"; return 1; }
    case $event in
    down | blink) ;;
    *) watched=$(echo "$watched" | grep -vx "$victim") ;;
    esac
    lost=
    sleep "$moment"
    strike
    struck=$(now)
    before=$(rounds)
    within $((TIMEOUT + SLACK)) over || true
    status=0
    outcome=$(judge) || status=1
    echo "$what: $outcome, $(echo "$(now) $struck" | awk '{ printf "%.1f", $1 - $2 }') s"
    [ $status = 0 ] || tail -n 3 "$dir"/log/rank.* "$dir/out"
    return $status
}

ran=0
failed=0
for seed; do
    if ! trial "$seed"; then
        failed=$((failed + 1))
    fi
    [ -z "$dir" ] || ran=$((ran + 1))
    end_job
done
echo "$ran trials, $failed failed"
[ $failed = 0 ]
[ $ran -gt 0 ] || exit 77
