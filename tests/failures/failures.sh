#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/failures/failures.sh CZERO SEEDS PROGRAM ARGUMENTS…: one trial for each seed (SEEDS: 17, or
# 1-200, or "3 5 9"). In a trial a training is made to fail at random moments: a rank or the whole
# job is killed, a rank or the job is stopped, the link of a host goes down for good or for less
# than a second, the disk is full. After each failure it goes on from its newest checkpoint, on a
# random number of ranks. Ranks are threads, processes of Open MPI, or such processes on two hosts
# (network namespaces). In the end its checkpoint must have the same bits as that of a run which
# never failed (`czero diff`), no generation that was complete may be lost, nothing may hang.
#
# `failures.sh CZERO 17 PROGRAM …` repeats trial 17, moments as far as the machine repeats them.
# PROGRAM trains from the newest checkpoint in a folder to its end, saves on the way and at the end,
# and ends with 0 then; its bits do not depend on the number of ranks (else: FAILURES_RANKS=2,
# always so many). In ARGUMENTS {folder} and {seed} are replaced; the number of ranks comes by
# mpirun or CZERO_RANKS. FAILURES_PLACES="threads mpi hosts" are the places to choose from;
# FAILURES_DIFF=--parameters-only is for programs that save times of their own beside the training.
# Exits with 77 if there is no mpirun or hosts are not allowed, and no other place was asked for.
set -eu
czero=$(realpath "$1")
seeds=$2
program=$(realpath "$3")
here=$(dirname "$0")/../multihost
. "$here/hosts.sh"

TIMEOUT=4 # of the groups, seconds
LIMIT=120 # until a job has ended, on a machine that is slow: more is a hang
export CZERO_TIMEOUT=$TIMEOUT CZERO_WARN=2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
unset CZERO_RANKS CZERO_BACKEND

case $seeds in
*-*) seeds=$(seq "${seeds%-*}" "${seeds#*-}") ;;
esac

# The places that can be had here. Without namespaces the disk is a plain folder, which is never
# full.
without=$(hosts_allowed) && own_hosts "$0" "$@"
shift 3
places=
for place in ${FAILURES_PLACES:-threads mpi hosts}; do
    case $place in
    mpi) command -v mpirun.openmpi >/dev/null || continue ;;
    hosts) command -v mpirun.openmpi >/dev/null && [ -z "$without" ] || continue ;;
    esac
    places="$places $place"
done
[ -n "$places" ] || skip "neither Open MPI nor hosts: $without"
case $without in '') disk="disk" ;; *) disk= ;; esac

# ---- random numbers: the same for a seed, whatever happens ----

draw() { # draw LIMIT: sets $drawn
    x=$(((x * 1103515245 + 12345) % 2147483648))
    drawn=$((x / 65536 % $1))
}
pick() { # pick WORD…: sets $drawn to one of them
    draw $#
    shift "$drawn"
    drawn=$1
}
seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); } # of milliseconds

# ---- processes ----

ranks_running() { # their pids: processes that run the program, in this trial's session of jobs
    for exe in /proc/[0-9]*/exe; do
        [ "$(readlink "$exe" 2>/dev/null)" = "$program" ] || continue
        pid=${exe#/proc/}
        pid=${pid%/exe}
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "FAILURES_TRIAL=$dir" && echo "$pid"
    done
    return 0
}
job_ended() { ! kill -0 "$job" 2>/dev/null; }

dir=
job=
end_job() {
    for pid in $(ranks_running); do
        kill -KILL "$pid" 2>/dev/null || true # it may have ended by itself
    done
    if [ -n "$job" ]; then
        kill "$job" 2>/dev/null || true
        within 8 job_ended || kill -KILL "$job" 2>/dev/null || true
        wait "$job" 2>/dev/null || true
        job=
    fi
    [ "$place" != hosts ] || sh "$here/down.sh" "$dir/hosts"
}
end_trial() {
    [ -n "$dir" ] || return 0
    end_job
    [ -z "$disk" ] || umount "$dir/disk" 2>/dev/null || true
    rm -rf "$dir"
    dir=
}
trap end_trial EXIT
trap 'exit 1' INT TERM

# ---- one attempt ----

start() { # start FOLDER ARGUMENTS…
    folder=$1
    shift
    for argument; do
        shift
        set -- "$@" "$(printf %s "$argument" | sed "s|{folder}|$folder|g; s|{seed}|$seed|g")"
    done
    set -- "$program" "$@"
    case $place in
    threads) CZERO_BACKEND=threads CZERO_RANKS=$ranks "$@" >"$dir/out" 2>&1 & ;;
    mpi)
        [ "$mpirun" = ends ] || set -- --enable-recovery "$@"
        timeout -k 5 $((LIMIT + 60)) mpirun.openmpi --mca orte_tmpdir_base "$dir" -n "$ranks" "$@" \
            >"$dir/out" 2>&1 &
        ;;
    hosts)
        sh "$here/up.sh" "$dir/hosts" 2
        CZ_RANKS_OF_HOST=$((ranks / 2)) sh "$here/run.sh" "$dir/hosts" -x FAILURES_TRIAL -x CZERO_TIMEOUT \
            -x CZERO_WARN "$@" >"$dir/out" 2>&1 &
        ;;
    esac
    job=$!
}

newest() { # the step of the newest complete generation, -1 if there is none
    found=$("$czero" inspect --json "$dir/disk/checkpoints" 2>/dev/null |
        sed -n 's/^ *"step": *\([0-9]*\),*$/\1/p' | head -n 1)
    echo "${found:--1}"
}

strike() {
    pids=$(ranks_running)
    # shellcheck disable=SC2086
    set -- $pids
    [ $# -gt 0 ] || return 0 # it has ended, or has not begun
    case $event in kill*) killed=yes ;; esac
    shift $((victim % $#))
    case $event in
    kill) kill -KILL "$1" 2>/dev/null || true ;;
    kill-all) kill -KILL $pids 2>/dev/null || true ;;
    stop)
        kill -STOP "$1" 2>/dev/null || true
        stopped=$1
        ;;
    pause)
        kill -STOP $pids 2>/dev/null || true
        sleep "$(seconds "$length")"
        kill -CONT $pids 2>/dev/null || true
        ;;
    full)
        cat /dev/zero >"$dir/disk/filler" 2>/dev/null || true
        sleep "$(seconds "$length")"
        rm -f "$dir/disk/filler"
        ;;
    down) ip -n "czh$((victim % 2))" link set cz0 down ;;
    blink)
        ip -n "czh$((victim % 2))" link set cz0 down
        sleep "$(seconds "$length")"
        ip -n "czh$((victim % 2))" link set cz0 up
        ;;
    esac
}

# No rank has crashed. (mpirun itself may, in PMIx_Finalize, when its ranks are killed.)
no_crash() {
    [ $place != threads ] || case $ended in 132 | 134 | 135 | 136 | 139) return 1 ;; esac
    ! grep -qE 'exited on signal (4|6|7|8|11) |AddressSanitizer|runtime error:|stack smashing' "$dir/out"
}

# mpirun may hang when a link is gone, though its ranks have ended. A job without an event ends by
# itself. An mpirun that stays ends no rank that was stopped before it was in MPI, where nobody else
# can.
none_runs() {
    left=$(ranks_running)
    [ -z "$left" ] || { [ "$mpirun" = stays ] && [ "$left" = "$stopped" ]; }
}
over() {
    ! job_ended || return 0
    [ "$event" != none ] && none_runs && sleep 3 && none_runs
}

choose_event() {
    case $place in
    threads) events="kill pause" ;;
    mpi) events="kill kill-all stop pause" ;;
    hosts) events="kill stop down blink" ;;
    esac
    # shellcheck disable=SC2086
    pick $events ${disk:+full}
    event=$drawn
    draw 4000
    moment=$drawn
    draw 1000
    length=$((100 + drawn))
    draw 100
    victim=$drawn
    pick ends stays
    mpirun=$drawn
}

choose_ranks() {
    draw 5
    ranks=$((1 + drawn))
    [ "$place" != hosts ] || ranks=$((2 + drawn % 2 * 2))
    ranks=${FAILURES_RANKS:-$ranks}
}

fail() {
    echo "$what: $*"
    tail -n 12 "$dir/out" | sed 's/^/    /'
    [ -z "${FAILURES_KEEP:-}" ] || cp -r "$dir" "$FAILURES_KEEP/seed-$seed"
    return 1
}

# attempt: the job is made to fail if $event is one, and must end; then what is on the disk must be
# whole.
attempt() {
    what="$what, $ranks $place"
    killed=
    stopped=
    start "$dir/disk/checkpoints" "$@"
    if [ "$event" != none ]; then
        what="$what $event@$(seconds "$moment")"
        sleep "$(seconds "$moment")"
        before=$(newest)
        strike
    fi
    within $LIMIT over || { fail "HANGS"; return 1; }
    ended=0
    if job_ended; then wait "$job" || ended=$?; else ended=1; fi
    end_job
    no_crash || { fail "CRASHED"; return 1; }
    # mpirun may say that all is well when all ranks were killed, and says so after any failure if
    # it stays.
    [ -z "$killed" ] || ended=1
    [ $place != mpi ] || [ "$mpirun" = ends ] || ended=1
    after=$(newest)
    [ "$after" -ge "$before" ] || { fail "LOST A GENERATION: step $before was there, now $after"; return 1; }
    if [ "$after" -ge 0 ] && ! "$czero" verify --quiet "$dir/disk/checkpoints" >>"$dir/out" 2>&1; then
        fail "DAMAGED"
        return 1
    fi
    before=$after
}

trial() {
    seed=$1
    began=$(now)
    shift
    x=$((seed * 7919 % 2147483648))
    draw 2
    what="seed $seed"
    dir=$(mktemp -d)
    place=threads
    export FAILURES_TRIAL="$dir"
    mkdir "$dir/disk"
    [ -z "$disk" ] || mount -t tmpfs -o size=${FAILURES_DISK:-48m} none "$dir/disk"

    ranks=${FAILURES_RANKS:-1}
    start "$dir/reference" "$@"
    wait "$job" || { job=; fail "the reference FAILED"; return 1; }
    job=

    # shellcheck disable=SC2086
    pick $places
    place=$drawn
    draw 3
    failures=$((1 + drawn))
    before=-1
    while [ $failures -gt 0 ]; do
        choose_ranks
        [ "$before" -ge 0 ] || [ -n "${FAILURES_RANKS:-}" ] || ranks=4
        choose_event
        attempt "$@" || return 1
        [ $ended != 0 ] || break
        failures=$((failures - 1))
    done
    if [ $ended != 0 ]; then
        event=none
        mpirun=ends
        choose_ranks
        attempt "$@" || return 1
        [ $ended = 0 ] || { fail "does not END WELL without a failure"; return 1; }
    fi
    # shellcheck disable=SC2086
    "$czero" diff ${FAILURES_DIFF:-} "$dir/reference" "$dir/disk/checkpoints" >"$dir/difference" 2>&1 || {
        tail -n 5 "$dir/difference" >>"$dir/out"
        fail "OTHER BITS than without failures"
        return 1
    }
    echo "$what: the same bits at step $after, $(echo "$(now) $began" | awk '{ printf "%.0f", $1 - $2 }') s"
}

count=0
failed=0
for seed in $seeds; do
    count=$((count + 1))
    trial "$seed" "$@" || failed=$((failed + 1))
    end_trial
done
echo "$count trials, $failed failed"
[ $failed = 0 ]
