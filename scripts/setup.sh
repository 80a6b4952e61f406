#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/setup.sh build|test|demo|mpi|bench|torch|lint|fuzz|nightly|coverage|valgrind: install the Debian packages that are missing for it.
#
# Says which packages and what each is for. Needs root or sudo; without them, or without apt, it
# prints the command to type and exits 1. Does nothing when nothing is missing. SETUP=no in the
# environment: install nothing, only say what is missing.
set -eu

goal=${1:-build}
cd "$(dirname "$0")/.."

# package | who needs it | command or pkg-config name that shows it is there already | what for
packages='
gcc                    | build test demo mpi bench torch lint fuzz nightly | gcc            | compiles the library
libc6-dev              | build test demo mpi bench torch lint fuzz nightly |                | headers of the C library
cmake                  | build test demo mpi bench torch lint fuzz nightly | cmake          | configures the build
ninja-build            | build test demo mpi bench torch lint fuzz nightly | ninja          | runs the build
pkg-config             | build test demo mpi bench torch lint fuzz nightly | pkg-config     | finds libraries
libcmocka-dev          | test lint nightly                           | pc:cmocka      | unit tests
g++                    | test lint nightly                           | g++            | tests the headers as C++
gfortran               | test nightly                                | gfortran       | the Fortran modules, their tests and example
libopenblas-pthread-dev| test demo mpi lint nightly                  | pc:openblas    | matrix products in the examples
libjansson-dev         | build test demo mpi bench torch lint fuzz nightly | pc:jansson     | JSON in checkpoints and reports
libxxhash-dev          | build test demo mpi bench torch lint fuzz nightly | pc:libxxhash   | checksums of checkpoints
libzip-dev             | build test demo mpi bench torch lint fuzz nightly | pc:libzip      | files of PyTorch
zlib1g-dev             | test demo mpi lint nightly                  | pc:zlib        | reads .gz data in the examples
scdoc                  | build test lint nightly                     | scdoc          | man pages of the czero command
bible-kjv              | test demo mpi nightly                       | bible          | text to train the example GPT on
bible-kjv-text         | test demo mpi nightly                       |                | text to train the example GPT on
dataset-fashion-mnist  | test nightly                                |                | images to train an example on
libtorch-dev           | test nightly                                |                | tests modules of libtorch on several ranks
libopenmpi-dev         | test mpi bench lint nightly                 | mpicc.openmpi  | the MPI plugin
openmpi-bin            | test mpi bench nightly                      | mpirun.openmpi | runs its tests and benchmarks
iproute2               | test bench nightly                          | ip             | makes the hosts of the multi-host tests
libmpich-dev           | nightly                                     | mpicc.mpich    | the MPI plugin for MPICH
mpich                  | nightly                                     | mpirun.mpich   | runs its tests
clang                  | fuzz nightly                                | clang          | a second compiler, which fuzzing takes
libclang-rt-14-dev     | fuzz                                        |                | libFuzzer, and sanitizers for clang
clang-format           | lint                                        | clang-format   | checks the layout of the code
clang-tidy             | lint                                        | clang-tidy     | static analysis
gcovr                  | coverage                                    | gcovr          | counts the lines that tests run
valgrind               | valgrind                                    | valgrind       | finds leaks and memory that was never written
python3                | test torch nightly                          | python3        | tests the Python package
python3-venv           | test torch nightly                          |                | builds its wheel and tries it
python3-numpy          | test torch nightly                          |                | arrays in its tests
python3-torch          | test torch nightly                          |                | what its drop-in is compared with
python3-mpi4py         | test nightly                                |                | communicators in its tests
cppcheck               | lint                                        | cppcheck       | static analysis
'

case $goal in
build | test | demo | mpi | bench | torch | lint | fuzz | nightly | coverage | valgrind) ;;
*)
    echo "usage: scripts/setup.sh build|test|demo|mpi|bench|torch|lint|fuzz|nightly|coverage|valgrind" >&2
    exit 2
    ;;
esac

wanted=$(printf '%s' "$packages" | awk -F '|' -v goal="$goal" '
    index(" " $2 " ", " " goal " ") { gsub(/ /, "", $1); gsub(/ /, "", $3); print $1 "|" $3 }')
names=$(printf '%s\n' "$wanted" | sed 's/|.*//')

installed=
if command -v dpkg-query >/dev/null; then
    # shellcheck disable=SC2086
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $names 2>/dev/null |
        sed -n 's/^installed //p') || true
fi

missing=
for line in $wanted; do
    package=${line%%|*}
    probe=${line#*|}
    case " $(echo $installed) " in *" $package "*) continue ;; esac
    case $probe in # from elsewhere than a Debian package
    pc:*) pkg-config --exists "${probe#pc:}" 2>/dev/null && continue ;;
    ?*) command -v "$probe" >/dev/null && continue ;;
    '') command -v dpkg-query >/dev/null || continue ;; # not Debian: the build will tell
    esac
    missing="$missing $package"
done

[ -n "$missing" ] || exit 0

echo "czero: these Debian packages are missing for 'make $(echo "$goal" | sed s/^mpi/demo-mpi/)':" >&2
printf '%s' "$packages" | awk -F '|' -v missing="$missing " '
    { name = $1; gsub(/ /, "", name) }
    name && index(missing, " " name " ") { printf "  %-24s%s\n", name, $4 }' >&2

options="-y --no-install-recommends"
command="apt-get update && apt-get install $options$missing"
if ! command -v apt-get >/dev/null; then
    echo "There is no apt-get here. Install what they contain; on Debian: $command" >&2
    exit 1
fi
if [ "${SETUP:-yes}" = no ]; then
    echo "Not installed, because SETUP=no. To install: $command" >&2
    exit 1
fi

sudo=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo="sudo -n"
    elif command -v sudo >/dev/null && [ -t 0 ]; then
        sudo=sudo
    else
        echo "Installing them takes root. Type: sudo sh -c '$command'" >&2
        exit 1
    fi
fi

echo "czero: installing them with apt-get" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for step in "update" "install $options$missing"; do
    # shellcheck disable=SC2086
    if ! $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 $step \
        </dev/null >"$log" 2>&1; then
        cat "$log" >&2
        echo "czero: 'apt-get $step' failed. To try again: $command" >&2
        exit 1
    fi
done
rm -f build/*/build.ninja # so that the Makefile configures again and finds them
